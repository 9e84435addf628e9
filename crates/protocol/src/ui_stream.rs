//! The UI message stream of the AI SDK, for `useChat`.
//!
//! A run is one message of the assistant, and its segments continue it: a request shows one segment, a client that comes
//! back is shown all of them. [`UiStreamProjection`] makes the chunks. They go to a sink: one writes frames, [`UiReplay`]
//! writes what a client has missed in few frames, and [`UiRunMessages`] is the SDK's own reducer, so that a message that is
//! read later is the one that was streamed. [`parse_ui_chat_request`] reads requests.
//!
//! Version 6 of the SDK refuses chunks that it does not know. [`UiVersion::Seven`] has those that version 7 added.

mod message_builder;
mod project;
mod replay;
mod request;
mod wire;

pub use message_builder::{UiMessage, UiPart, UiRunMessages};
pub use project::UiStreamProjection;
pub use replay::{UiReplay, ui_cancelled_frames};
pub use request::{
    UiAnsweredCall, UiApprovalAnswer, UiChatRequest, UiClientOutput, UiRequestMessage, UiTrigger, parse_ui_chat_request,
};

/// The protocol in the ids of clients, and of the aliases that its clients give to threads.
pub const UI_STREAM_PROTOCOL: &str = "ui-stream";

/// The version of the SDK that reads the stream. Nothing in a request says which one it is, so clients choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UiVersion {
    #[default]
    Six,
    Seven,
}

impl UiVersion {
    /// The name of the projection in cursors.
    pub const fn projection_name(self) -> &'static str {
        match self {
            Self::Six => "ui6",
            Self::Seven => "ui7",
        }
    }

    /// Parses the query parameter `ui`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "6" => Some(Self::Six),
            "7" => Some(Self::Seven),
            _ => None,
        }
    }
}
