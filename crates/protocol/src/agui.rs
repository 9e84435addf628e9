//! AG-UI: the runs of a thread as standard events, in the versions 1.0 and 0.0.59.
//!
//! A run of AG-UI ends where ours pauses, so each part of a run between pauses (a segment) is a run of the protocol.
//! [`AgUiProjection`] makes the events and passes them to a sink: frames, or the reducer that every client has
//! ([`MessageList`]). Snapshots of messages therefore cannot disagree with the stream. `prelude` brings a client without a
//! cursor to the head of a thread, `request` reads what clients send.

mod message_list;
mod prelude;
mod project;
mod request;
pub mod wire;

pub use message_list::MessageList;
pub use prelude::{AgUiHistory, AgUiRunSnapshot, agui_cancelled_frames, agui_messages_frame, agui_prelude};
pub use project::{AgUiProjection, AgUiScope, agui_run_id};
pub use request::{
    AgUiLegacyAnswer, AgUiRequest, AgUiResume, AgUiResumeStatus, InvalidAgUiRequest, check_agui_id, parse_agui_request,
    parse_agui_stop, parse_agui_version, parse_tool_message_decision,
};
pub use wire::{AgUiEvent, AgUiMessage};

/// The name of the protocol in client ids and in the aliases that its clients give to threads.
pub const AG_UI_PROTOCOL: &str = "ag-ui";

/// The messages of a snapshot have at most this many bytes: clients reject events of 10 MiB.
pub const SNAPSHOT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The dialect of a client. Clients of 0.0.59 reject what is new in 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgUiVersion {
    /// 1.0 and later minor versions.
    V1,
    /// The last release before 1.0. Its clients name no version.
    V0_0_59,
}

impl AgUiVersion {
    /// The name of the projection in cursors: the number of frames of a record depends on the version.
    pub const fn projection_name(self) -> &'static str {
        match self {
            Self::V1 => "agui1",
            Self::V0_0_59 => "agui0",
        }
    }
}
