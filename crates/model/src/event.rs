//! Everything that can happen to a task, in the order in which it happens.
//!
//! An event is the only way state changes (see [`crate::fold`]). Serde names are wire names: renaming one is a
//! protocol change. How events are stored is `store`'s business, how a client sees them is `protocol`'s.
//! Payloads: [`life`] (the task and its steps), [`output`] (items and blocks), [`people`] (questions, state, thread).

#![warn(missing_docs)]

pub mod approvals;
pub mod lifecycle;
pub mod output;

pub use approvals::*;
pub use lifecycle::*;
pub use output::*;

use crate::id::TaskId;
use serde::{Deserialize, Serialize};

/// One typed change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    /// The task begins. Carries what was asked and which agent answers.
    #[serde(rename = "task.created")]
    Created(TaskCreated),
    /// An executor has taken it up.
    #[serde(rename = "task.started")]
    Started(TaskStarted),

    /// The model is asked. One attempt of one turn.
    #[serde(rename = "task.step.started")]
    StepStarted(StepStarted),
    /// The provider failed before anything was shown; it is asked again.
    #[serde(rename = "task.retrying")]
    Retrying(StepRetrying),

    /// A new element of the task's output, empty but complete in shape.
    #[serde(rename = "task.output_item.added")]
    ItemAdded(ItemEvent),
    /// A new part of a reasoning summary.
    #[serde(rename = "task.reasoning_summary_item.added")]
    SummaryAdded(SummaryEvent),
    /// One more piece of a summary part.
    #[serde(rename = "task.reasoning_summary_text.delta")]
    SummaryDelta(SummaryDelta),
    /// The summary part, whole.
    #[serde(rename = "task.reasoning_summary_item.done")]
    SummaryDone(SummaryEvent),
    /// One more piece of a call's arguments.
    #[serde(rename = "task.tool_call_arguments.delta")]
    ArgumentsDelta(ArgumentsDelta),
    /// The arguments, whole. Never sent for arguments that were cut.
    #[serde(rename = "task.tool_call_arguments.done")]
    ArgumentsDone(ArgumentsDone),
    /// A tool that the provider runs itself moved on.
    #[serde(rename = "task.hosted_call.updated")]
    HostedCallUpdated(HostedCallUpdated),
    /// A file moved on.
    #[serde(rename = "task.file_processing.updated")]
    FileProcessingUpdated(FileProcessingUpdated),
    /// A new text block.
    #[serde(rename = "task.text.added")]
    TextAdded(TextEvent),
    /// One more piece of a text block.
    #[serde(rename = "task.text.delta")]
    TextDelta(TextDelta),
    /// A place in a text block refers to something.
    #[serde(rename = "task.text.annotation.added")]
    AnnotationAdded(AnnotationAdded),
    /// The text block, whole. Alone, it is a short block in one event.
    #[serde(rename = "task.text.done")]
    TextDone(TextEvent),
    /// A new image block, empty.
    #[serde(rename = "task.image.added")]
    ImageAdded(ImageEvent),
    /// The image as far as it is: each delta is a whole picture.
    #[serde(rename = "task.image.delta")]
    ImageDelta(ImageDelta),
    /// The image.
    #[serde(rename = "task.image.done")]
    ImageDone(ImageEvent),
    /// The element, whole.
    #[serde(rename = "task.output_item.done")]
    ItemDone(ItemEvent),
    /// The turn ended: whole, limited or cut.
    #[serde(rename = "task.step.done")]
    StepDone(StepDone),

    /// A tool is about to run. Durable before it does (law 10).
    #[serde(rename = "task.tool.started")]
    ToolStarted(ToolStarted),
    /// A tool says how far it is.
    #[serde(rename = "task.tool.progress")]
    ToolProgress(ToolProgress),
    /// Another agent goes on.
    #[serde(rename = "task.agent.updated")]
    AgentUpdated(AgentUpdated),
    /// The user said something more while the task ran.
    #[serde(rename = "task.input.added")]
    InputAdded(InputAdded),

    /// A person is asked.
    #[serde(rename = "task.approval.requested")]
    ApprovalRequested(ApprovalRequested),
    /// The question was decided.
    #[serde(rename = "task.approval.resolved")]
    ApprovalResolved(ApprovalResolved),
    /// Nothing in the run can go on without people. The root's alone.
    #[serde(rename = "task.paused")]
    Paused(TaskPaused),
    /// It goes on. Always the record after `paused`.
    #[serde(rename = "task.resumed")]
    Resumed(TaskResumed),

    /// The shared state, whole.
    #[serde(rename = "task.state.snapshot")]
    StateSnapshot(StateSnapshot),
    /// The shared state changed (RFC 6902).
    #[serde(rename = "task.state.delta")]
    StateDelta(StateDelta),
    /// Something that only the sender and the front end understand.
    #[serde(rename = "task.custom")]
    Custom(CustomEvent),
    /// An upstream event that we do not know, as it came.
    #[serde(rename = "task.provider_event")]
    ProviderEvent(ProviderEvent),

    /// A cancel waits for the turn to end.
    #[serde(rename = "task.cancelling")]
    Cancelling(TaskCancelling),
    /// The process died; what was in flight is cut and done again.
    #[serde(rename = "task.recovered")]
    Recovered(TaskRecovered),
    /// The task did what it was asked. Terminal.
    #[serde(rename = "task.completed")]
    Completed(TaskCompleted),
    /// A limit ended it. Terminal.
    #[serde(rename = "task.incomplete")]
    Incomplete(TaskIncomplete),
    /// It went wrong. Terminal.
    #[serde(rename = "task.failed")]
    Failed(TaskFailed),
    /// Somebody stopped it. Terminal.
    #[serde(rename = "task.cancelled")]
    Cancelled(TaskCancelled),

    /// Older history was summarised for the model. The records stay.
    #[serde(rename = "thread.history.compacted")]
    HistoryCompacted(HistoryCompacted),
    /// A run is no longer shown. The records stay.
    #[serde(rename = "thread.run.hidden")]
    RunHidden(RunHidden),

    /// A type that this version does not know. Shown to readers as it is, skipped by the fold and counted.
    #[serde(skip)]
    Unknown(UnknownEvent),
}

/// What is left of an event of a later version.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UnknownEvent {
    /// Its task, where it names one.
    pub task_id: Option<TaskId>,
}

/// Only `type` and `task_id` of any event, for readers that need no more.
#[derive(Deserialize)]
struct Envelope {
    task_id: Option<TaskId>,
}

impl Event {
    /// Reads stored bytes. Never fails: what is not known is [`Event::Unknown`].
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_else(|_| {
            let task_id = serde_json::from_slice::<Envelope>(bytes).ok().and_then(|envelope| envelope.task_id);
            Self::Unknown(UnknownEvent { task_id })
        })
    }

    /// The task that it happens to; `None` for `thread.*`.
    #[must_use]
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

    /// Does it end its task?
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Incomplete(_) | Self::Failed(_) | Self::Cancelled(_))
    }
}
