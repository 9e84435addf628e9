//! Aliases: client-side names of threads, with per-protocol data.

use crate::id::ThreadId;
use crate::json::ExactObject;
use crate::seq::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A client's name for a thread. The thread need not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct AliasRow {
    pub name: String,
    /// The thread that the name refers to.
    pub thread: ThreadId,
    pub data: AliasData,
    pub created_at: Millis,
}

/// The namespace of an alias: names of different kinds do not collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AliasKind {
    /// The id of an agent run's thread, chosen by the client.
    AgentRun,
    /// The id of a WebSocket session, chosen by the client.
    BlockSession,
    /// The id of a conversation of the Responses API.
    Conversation,
    /// The id of a deleted response: it is hidden, although its thread exists.
    DeletedResponse,
    /// The id of an AG-UI thread, chosen by the client.
    AgUiThread,
    /// The id of a chat of the AI SDK's UI stream, chosen by the client.
    UiChat,
}

impl AliasKind {
    /// The stored form of the kind. It must never change.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentRun => "agent-runs",
            Self::BlockSession => "blocks",
            Self::Conversation => "conversations",
            Self::DeletedResponse => "responses.deleted",
            Self::AgUiThread => "ag-ui",
            Self::UiChat => "ui-stream",
        }
    }
}

/// An alias's kind with the data that its protocol stores.
#[derive(Clone, Debug, PartialEq)]
pub enum AliasData {
    AgentRun,
    BlockSession,
    Conversation(ConversationData),
    DeletedResponse,
    AgUiThread,
    UiChat,
}

impl AliasData {
    /// The kind without the data.
    pub const fn kind(&self) -> AliasKind {
        match self {
            Self::AgentRun => AliasKind::AgentRun,
            Self::BlockSession => AliasKind::BlockSession,
            Self::Conversation(_) => AliasKind::Conversation,
            Self::DeletedResponse => AliasKind::DeletedResponse,
            Self::AgUiThread => AliasKind::AgUiThread,
            Self::UiChat => AliasKind::UiChat,
        }
    }

    /// The stored form of the data.
    pub fn to_stored(&self) -> String {
        match self {
            Self::Conversation(data) => data.to_stored(),
            Self::AgentRun | Self::BlockSession | Self::DeletedResponse | Self::AgUiThread | Self::UiChat => {
                String::new()
            }
        }
    }

    /// Decodes [`Self::to_stored`]. A conversation whose text cannot be parsed is empty.
    pub fn from_stored(kind: AliasKind, text: &str) -> Self {
        match kind {
            AliasKind::AgentRun => Self::AgentRun,
            AliasKind::BlockSession => Self::BlockSession,
            AliasKind::Conversation => Self::Conversation(serde_json::from_str(text).unwrap_or_default()),
            AliasKind::DeletedResponse => Self::DeletedResponse,
            AliasKind::AgUiThread => Self::AgUiThread,
            AliasKind::UiChat => Self::UiChat,
        }
    }
}

/// The data of a conversation that is not in its thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationData {
    pub metadata: ExactObject,
    /// Items that no run has consumed yet.
    pub items: Vec<Value>,
}

impl ConversationData {
    /// The stored form of the data.
    pub fn to_stored(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The result of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasUpdate {
    /// The row has the new data.
    Updated,
    /// The row changed since the caller read it: read it again. Nothing was written.
    Conflict,
    NotFound,
}
