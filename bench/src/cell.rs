//! The cells of Headwater: which protocol a client speaks, and which model answers.

use crate::stream_protocol::StreamProtocol;
use crate::target::LoadTarget;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HeadwaterCell {
    /// A model inside the process, read in the native protocol: the lower bound.
    Scripted,
    /// A provider over HTTP, read in the native protocol.
    Tasks,
    /// A provider over HTTP, read as Responses.
    Responses,
    /// A provider over HTTP, read as Chat Completions.
    Chat,
    /// A provider over HTTP, read as Messages.
    Messages,
    /// A provider over HTTP, read as content blocks over a WebSocket.
    Blocks,
}

impl HeadwaterCell {
    pub(crate) const ALL: [Self; 6] =
        [Self::Scripted, Self::Tasks, Self::Responses, Self::Chat, Self::Messages, Self::Blocks];

    /// The name of its row.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scripted => "headwater, scripted model",
            Self::Tasks => "headwater → tasks",
            Self::Responses => "headwater → responses",
            Self::Chat => "headwater → chat",
            Self::Messages => "headwater → messages",
            Self::Blocks => "headwater → blocks",
        }
    }

    /// Headwater at `server`, asked as this cell says.
    pub(crate) fn target(self, server: &LoadTarget) -> LoadTarget {
        let protocol = match self {
            Self::Scripted | Self::Tasks => StreamProtocol::Tasks,
            Self::Responses => StreamProtocol::Responses,
            Self::Chat => StreamProtocol::Chat,
            Self::Messages => StreamProtocol::Messages,
            Self::Blocks => StreamProtocol::Blocks,
        };
        let model = if self == Self::Scripted { "scripted" } else { "bench" };
        LoadTarget { name: self.name(), protocol, model, ..server.clone() }
    }
}
