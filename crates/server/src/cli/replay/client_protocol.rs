//! The protocols in which a run can be replayed.

use model::Record;
use model::event::Event;
use model::ports::Projection;
use protocol::agent_runs::{self, AgentRunsProjection};
use protocol::agui::{AG_UI_PROTOCOL, AgUiProjection, AgUiScope, AgUiVersion};
use protocol::blocks::{self, BlocksProjection};
use protocol::responses::ResponsesProjection;
use protocol::run_items::RunItemsProjection;
use protocol::task::{RecordScope, TaskProjection};
use protocol::ui_stream::{UiStreamProjection, UiVersion};
use protocol::{chat, messages};
use store::LoggedRun;

pub(super) const PROTOCOL_NAMES: &str = "task, run-items, responses, blocks, agent-runs, messages, chat, ag-ui, ag-ui-0.0.59, ui-stream or \
     ui-stream-7";

/// Ends a stream of OpenAI's protocols.
const DONE: &[u8] = b"data: [DONE]\n\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProtocol {
    Task,
    RunItems,
    Responses,
    Blocks,
    AgentRuns,
    Messages,
    Chat,
    AgUi(AgUiVersion),
    /// The AI SDK's UI message stream.
    UiStream(UiVersion),
}

impl ClientProtocol {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "task" => Some(Self::Task),
            "run-items" => Some(Self::RunItems),
            "responses" => Some(Self::Responses),
            "blocks" => Some(Self::Blocks),
            "agent-runs" => Some(Self::AgentRuns),
            "messages" => Some(Self::Messages),
            "chat" => Some(Self::Chat),
            "ag-ui" => Some(Self::AgUi(AgUiVersion::V1)),
            "ag-ui-0.0.59" => Some(Self::AgUi(AgUiVersion::V0_0_59)),
            "ui-stream" => Some(Self::UiStream(UiVersion::Six)),
            "ui-stream-7" => Some(Self::UiStream(UiVersion::Seven)),
            _ => None,
        }
    }

    /// Whether a response ends where the run pauses, so that a run may have several.
    pub(super) const fn has_segments(self) -> bool {
        matches!(self, Self::Responses | Self::Messages | Self::Chat | Self::AgUi(_) | Self::UiStream(_))
    }

    /// Whether images are inlined.
    pub(super) const fn has_inline_images(self) -> bool {
        matches!(self, Self::Responses | Self::RunItems)
    }

    /// Follows the last frame of a response.
    pub(super) const fn terminator(self) -> &'static [u8] {
        match self {
            Self::Responses | Self::Chat | Self::UiStream(_) => DONE,
            Self::Task | Self::RunItems | Self::Blocks | Self::AgentRuns | Self::Messages | Self::AgUi(_) => b"",
        }
    }

    pub(super) fn projection(self, run: &LoggedRun, first: &Record, segment: u32) -> Box<dyn Projection> {
        let id = run.id.clone();
        match self {
            Self::Task => Box::new(TaskProjection::new(RecordScope::Run(id))),
            Self::RunItems => Box::new(RunItemsProjection::new(id, &run.thread)),
            Self::Responses => Box::new(ResponsesProjection::new(id, segment, &run.thread)),
            Self::Blocks => Box::new(BlocksProjection::new(thread_name(run, first, blocks::BLOCKS_PROJECTION))),
            Self::AgentRuns => {
                Box::new(AgentRunsProjection::new(thread_name(run, first, agent_runs::AGENT_RUNS_PROJECTION)))
            }
            Self::Messages => Box::new(messages::MessagesProjection::new(id, segment)),
            // Usage is sent on request only, and the log does not say whether it was requested.
            Self::Chat => Box::new(chat::ChatProjection::new(id, segment, chat::StreamUsage::Omitted)),
            Self::AgUi(version) => {
                let scope = AgUiScope::Segments { run: id, first: segment, last: segment };
                Box::new(AgUiProjection::new(version, thread_name(run, first, AG_UI_PROTOCOL), scope))
            }
            Self::UiStream(version) => Box::new(UiStreamProjection::new(id, segment, segment, version)),
        }
    }
}

/// The thread's name in the protocol: the one that the run was started with, or else its id.
fn thread_name(run: &LoggedRun, first: &Record, protocol: &str) -> String {
    let client = match first.event() {
        Event::Created(created) => created.task.client.clone(),
        _ => None,
    };
    let name = client.filter(|client| client.protocol == protocol).and_then(|client| client.thread_id);
    name.unwrap_or_else(|| run.thread.to_string())
}
