//! Aliases: the names under which clients know threads, with what each protocol keeps for such a name.

use crate::id::ThreadId;
use crate::json::JsonObject;
use crate::seq::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A name under which a client knows a thread. The thread need not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct AliasRow {
    /// The name.
    pub name: String,
    /// The thread that it stands for.
    pub thread: ThreadId,
    /// What the name is for, with the data that its protocol keeps.
    pub data: AliasData,
    /// When it was created.
    pub created_at: Millis,
}

/// What an alias is for. Names of different kinds do not collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AliasKind {
    /// The id of an agent run's thread, chosen by the client.
    AgentRun,
    /// The id of a WebSocket session, chosen by the client.
    BlockSession,
    /// The id of a conversation of the Responses API.
    Conversation,
    /// The id of a response that was deleted: it is no longer shown, although its thread exists.
    DeletedResponse,
}

impl AliasKind {
    /// The text that stores keep for the kind. It must never change.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentRun => "agent-runs",
            Self::BlockSession => "blocks",
            Self::Conversation => "conversations",
            Self::DeletedResponse => "responses.deleted",
        }
    }
}

/// An alias's kind with the data that its protocol keeps.
#[derive(Clone, Debug, PartialEq)]
pub enum AliasData {
    /// See [`AliasKind::AgentRun`].
    AgentRun,
    /// See [`AliasKind::BlockSession`].
    BlockSession,
    /// See [`AliasKind::Conversation`].
    Conversation(ConversationData),
    /// See [`AliasKind::DeletedResponse`].
    DeletedResponse,
}

impl AliasData {
    /// The kind alone.
    #[must_use]
    pub const fn kind(&self) -> AliasKind {
        match self {
            Self::AgentRun => AliasKind::AgentRun,
            Self::BlockSession => AliasKind::BlockSession,
            Self::Conversation(_) => AliasKind::Conversation,
            Self::DeletedResponse => AliasKind::DeletedResponse,
        }
    }

    /// The text that stores keep for the data.
    #[must_use]
    pub fn to_stored(&self) -> String {
        match self {
            Self::Conversation(data) => data.to_stored(),
            Self::AgentRun | Self::BlockSession | Self::DeletedResponse => String::new(),
        }
    }

    /// Decodes [`Self::to_stored`]. A conversation whose text cannot be parsed is empty.
    #[must_use]
    pub fn from_stored(kind: AliasKind, text: &str) -> Self {
        match kind {
            AliasKind::AgentRun => Self::AgentRun,
            AliasKind::BlockSession => Self::BlockSession,
            AliasKind::Conversation => Self::Conversation(serde_json::from_str(text).unwrap_or_default()),
            AliasKind::DeletedResponse => Self::DeletedResponse,
        }
    }
}

/// What a conversation holds beside its thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationData {
    /// The client's metadata.
    pub metadata: JsonObject,
    /// Items that no run has read yet.
    pub items: Vec<Value>,
}

impl ConversationData {
    /// The text that stores keep.
    #[must_use]
    pub fn to_stored(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The result of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasUpdate {
    /// The row has the new data.
    Updated,
    /// The row is no longer the one that the caller read: read it again. Nothing changed.
    Conflict,
    /// There is no such row.
    NotFound,
}
