//! Everything that can happen to a task, in the order in which it happens.
//!
//! An event is the only way state changes (see [`crate::fold`]). Serde names are wire names: renaming one is a
//! protocol change. How events are stored is `store`'s business, how a client sees them is `protocol`'s.
//!
//! Payloads: [`lifecycle`] (the task and its steps), [`output`] (items, blocks, tools), [`approvals`] (approvals and
//! pauses), [`state`] (shared state and pass-through events), [`thread`] (events of the thread, outside any task).

pub mod approvals;
pub mod lifecycle;
pub mod output;
pub mod state;
pub mod thread;

pub use approvals::*;
pub use lifecycle::*;
pub use output::*;
pub use state::*;
pub use thread::*;

use crate::id::TaskId;
use crate::json::{read_tag, unknown_tag};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// One typed change to a task or a thread.
// Payloads that are larger than a delta's are boxed: nearly all events are deltas, and an event is moved several times on its
// way into the log.
#[warn(missing_docs, reason = "the enum is the reference of the event log")]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Event {
    /// The task was created. Carries the input and the agent that runs it.
    #[serde(rename = "task.created")]
    Created(TaskCreated),
    /// An executor started the task.
    #[serde(rename = "task.started")]
    Started(TaskStarted),

    /// A request to the model starts: one attempt of one turn.
    #[serde(rename = "task.step.started")]
    StepStarted(StepStarted),
    /// The provider failed before it produced output; the request is sent again.
    #[serde(rename = "task.retrying")]
    Retrying(Box<StepRetrying>),

    /// A new item of the task's output, empty but complete in shape.
    #[serde(rename = "task.output_item.added")]
    ItemAdded(Box<ItemEvent>),
    /// A new part of a reasoning summary.
    #[serde(rename = "task.reasoning_summary_item.added")]
    SummaryAdded(SummaryEvent),
    /// More text of a summary part.
    #[serde(rename = "task.reasoning_summary_text.delta")]
    SummaryDelta(SummaryDelta),
    /// The complete summary part.
    #[serde(rename = "task.reasoning_summary_item.done")]
    SummaryDone(SummaryEvent),
    /// More text of a call's arguments.
    #[serde(rename = "task.tool_call_arguments.delta")]
    ArgumentsDelta(ArgumentsDelta),
    /// The complete arguments. Never sent for arguments that were truncated.
    #[serde(rename = "task.tool_call_arguments.done")]
    ArgumentsDone(ArgumentsDone),
    /// A tool that the provider runs changed its state.
    #[serde(rename = "task.hosted_call.updated")]
    HostedCallUpdated(HostedCallUpdated),
    /// A file of the input changed its processing status.
    #[serde(rename = "task.file_processing.updated")]
    FileProcessingUpdated(FileProcessingUpdated),
    /// A new text block.
    #[serde(rename = "task.text.added")]
    TextAdded(TextEvent),
    /// More text of a text block.
    #[serde(rename = "task.text.delta")]
    TextDelta(TextDelta),
    /// A range of a text block cites a source.
    #[serde(rename = "task.text.annotation.added")]
    AnnotationAdded(Box<AnnotationAdded>),
    /// The complete text block. Without a preceding `added`, it is a whole block in one event.
    #[serde(rename = "task.text.done")]
    TextDone(TextEvent),
    /// A new image block, empty.
    #[serde(rename = "task.image.added")]
    ImageAdded(ImageEvent),
    /// A preview of the image. Each delta is a complete picture that replaces the one before.
    #[serde(rename = "task.image.delta")]
    ImageDelta(ImageDelta),
    /// The final image.
    #[serde(rename = "task.image.done")]
    ImageDone(ImageEvent),
    /// The complete item.
    #[serde(rename = "task.output_item.done")]
    ItemDone(Box<ItemEvent>),
    /// The turn ended: complete, limited or interrupted.
    #[serde(rename = "task.step.done")]
    StepDone(Box<StepDone>),

    /// A tool is about to run. Durable before the tool starts (law 10).
    #[serde(rename = "task.tool.started")]
    ToolStarted(ToolStarted),
    /// A tool reports progress.
    #[serde(rename = "task.tool.progress")]
    ToolProgress(ToolProgress),
    /// A handoff: another agent continues the task.
    #[serde(rename = "task.agent.updated")]
    AgentUpdated(AgentUpdated),
    /// The user sent more input while the task was running.
    #[serde(rename = "task.input.added")]
    InputAdded(InputAdded),

    /// A tool call waits for a person's approval.
    #[serde(rename = "task.approval.requested")]
    ApprovalRequested(Box<ApprovalRequested>),
    /// The approval request was decided.
    #[serde(rename = "task.approval.resolved")]
    ApprovalResolved(ApprovalResolved),
    /// Nothing in the run can proceed without a client or a person. Only the root task pauses.
    #[serde(rename = "task.paused")]
    Paused(TaskPaused),
    /// The run continues. Always the record after `paused`.
    #[serde(rename = "task.resumed")]
    Resumed(Box<TaskResumed>),

    /// The complete shared state.
    #[serde(rename = "task.state.snapshot")]
    StateSnapshot(StateSnapshot),
    /// The shared state changed (RFC 6902).
    #[serde(rename = "task.state.delta")]
    StateDelta(StateDelta),
    /// An application-defined event, opaque to the server.
    #[serde(rename = "task.custom")]
    Custom(CustomEvent),
    /// An unrecognised upstream event, passed through unchanged.
    #[serde(rename = "task.provider_event")]
    ProviderEvent(ProviderEvent),

    /// Cancellation was requested and waits for the turn to end.
    #[serde(rename = "task.cancelling")]
    Cancelling(TaskCancelling),
    /// The process crashed; the interrupted attempt is discarded and run again.
    #[serde(rename = "task.recovered")]
    Recovered(TaskRecovered),
    /// The task finished. Terminal.
    #[serde(rename = "task.completed")]
    Completed(TaskCompleted),
    /// A limit ended the task. Terminal.
    #[serde(rename = "task.incomplete")]
    Incomplete(TaskIncomplete),
    /// The task failed. Terminal.
    #[serde(rename = "task.failed")]
    Failed(Box<TaskFailed>),
    /// The task was cancelled. Terminal.
    #[serde(rename = "task.cancelled")]
    Cancelled(TaskCancelled),

    /// Older history was summarised for the model. The records stay.
    #[serde(rename = "thread.history.compacted")]
    HistoryCompacted(HistoryCompacted),
    /// A run is hidden from listings. The records stay.
    #[serde(rename = "thread.run.hidden")]
    RunHidden(RunHidden),

    /// An event type that this version does not know. Passed to readers unchanged; the fold skips and counts it.
    #[serde(skip)]
    Unknown(UnknownEvent),
}

/// The part of a later version's event that this version can read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UnknownEvent {
    pub task_id: Option<TaskId>,
}

#[derive(Deserialize)]
struct Envelope {
    task_id: Option<TaskId>,
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(text.get().as_bytes()).map_err(D::Error::custom)
    }
}

impl Event {
    /// Decodes stored bytes. Never fails: an unknown type becomes [`Event::Unknown`].
    pub fn decode(bytes: &[u8]) -> Self {
        Self::read(bytes).unwrap_or_else(|_| {
            let task_id = serde_json::from_slice::<Envelope>(bytes).ok().and_then(|envelope| envelope.task_id);
            Self::Unknown(UnknownEvent { task_id })
        })
    }

    fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        /// One line for each variant: its wire name and its name.
        macro_rules! read_variant {
            ($tag:expr, $text:expr; $($name:literal => $variant:ident,)*) => {
                match $tag {
                    $($name => serde_json::from_slice($text).map(Self::$variant),)*
                    tag => Err(unknown_tag(tag)),
                }
            };
        }
        read_variant! { &*read_tag(text)?, text;
            "task.created" => Created,
            "task.started" => Started,
            "task.step.started" => StepStarted,
            "task.retrying" => Retrying,
            "task.output_item.added" => ItemAdded,
            "task.reasoning_summary_item.added" => SummaryAdded,
            "task.reasoning_summary_text.delta" => SummaryDelta,
            "task.reasoning_summary_item.done" => SummaryDone,
            "task.tool_call_arguments.delta" => ArgumentsDelta,
            "task.tool_call_arguments.done" => ArgumentsDone,
            "task.hosted_call.updated" => HostedCallUpdated,
            "task.file_processing.updated" => FileProcessingUpdated,
            "task.text.added" => TextAdded,
            "task.text.delta" => TextDelta,
            "task.text.annotation.added" => AnnotationAdded,
            "task.text.done" => TextDone,
            "task.image.added" => ImageAdded,
            "task.image.delta" => ImageDelta,
            "task.image.done" => ImageDone,
            "task.output_item.done" => ItemDone,
            "task.step.done" => StepDone,
            "task.tool.started" => ToolStarted,
            "task.tool.progress" => ToolProgress,
            "task.agent.updated" => AgentUpdated,
            "task.input.added" => InputAdded,
            "task.approval.requested" => ApprovalRequested,
            "task.approval.resolved" => ApprovalResolved,
            "task.paused" => Paused,
            "task.resumed" => Resumed,
            "task.state.snapshot" => StateSnapshot,
            "task.state.delta" => StateDelta,
            "task.custom" => Custom,
            "task.provider_event" => ProviderEvent,
            "task.cancelling" => Cancelling,
            "task.recovered" => Recovered,
            "task.completed" => Completed,
            "task.incomplete" => Incomplete,
            "task.failed" => Failed,
            "task.cancelled" => Cancelled,
            "thread.history.compacted" => HistoryCompacted,
            "thread.run.hidden" => RunHidden,
        }
    }

    /// The task that the event belongs to; `None` for `thread.*`.
    pub fn task_id(&self) -> Option<&TaskId> {
        match self {
            Self::Created(e) => Some(&e.task_id),
            Self::Started(e) => Some(&e.task_id),
            Self::StepStarted(e) => Some(&e.task_id),
            Self::Retrying(e) => Some(&e.task_id),
            Self::ItemAdded(e) | Self::ItemDone(e) => Some(&e.task_id),
            Self::SummaryAdded(e) | Self::SummaryDone(e) => Some(&e.task_id),
            Self::SummaryDelta(e) => Some(&e.task_id),
            Self::ArgumentsDelta(e) => Some(&e.task_id),
            Self::ArgumentsDone(e) => Some(&e.task_id),
            Self::HostedCallUpdated(e) => Some(&e.task_id),
            Self::FileProcessingUpdated(e) => Some(&e.task_id),
            Self::TextAdded(e) | Self::TextDone(e) => Some(&e.task_id),
            Self::TextDelta(e) => Some(&e.task_id),
            Self::AnnotationAdded(e) => Some(&e.task_id),
            Self::ImageAdded(e) | Self::ImageDone(e) => Some(&e.task_id),
            Self::ImageDelta(e) => Some(&e.task_id),
            Self::StepDone(e) => Some(&e.task_id),
            Self::ToolStarted(e) => Some(&e.task_id),
            Self::ToolProgress(e) => Some(&e.task_id),
            Self::AgentUpdated(e) => Some(&e.task_id),
            Self::InputAdded(e) => Some(&e.task_id),
            Self::ApprovalRequested(e) => Some(&e.task_id),
            Self::ApprovalResolved(e) => Some(&e.task_id),
            Self::Paused(e) => Some(&e.task_id),
            Self::Resumed(e) => Some(&e.task_id),
            Self::StateSnapshot(e) => Some(&e.task_id),
            Self::StateDelta(e) => Some(&e.task_id),
            Self::Custom(e) => Some(&e.task_id),
            Self::ProviderEvent(e) => Some(&e.task_id),
            Self::Cancelling(e) => Some(&e.task_id),
            Self::Recovered(e) => Some(&e.task_id),
            Self::Completed(e) => Some(&e.task_id),
            Self::Incomplete(e) => Some(&e.task_id),
            Self::Failed(e) => Some(&e.task_id),
            Self::Cancelled(e) => Some(&e.task_id),
            Self::HistoryCompacted(_) | Self::RunHidden(_) => None,
            Self::Unknown(e) => e.task_id.as_ref(),
        }
    }
}
