//! What the model is given of what was said and done: one list, whoever the provider is.

use crate::block::Part;
use crate::id::{CallId, ItemId};
use crate::item::ResultStatus;
use crate::record::RawItem;
use serde::{Deserialize, Serialize};

/// What was said and done before a run that its thread's log does not have: a client kept it itself, or the thread was
/// forked from another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Before {
    /// What was said and done.
    pub entries: Vec<Entry>,
    /// How many reference groups there were: their numbers stay good.
    pub references: u32,
}

/// One element of the conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// What was said and done before everything that follows, summed up.
    Summary {
        /// The summary.
        text: String,
    },
    /// The operator of the client spoke.
    System {
        /// What they said.
        text: String,
    },
    /// A person spoke.
    User {
        /// What they said.
        content: Vec<Part>,
    },
    /// The model thought. Given back only to where it came from.
    Reasoning {
        /// The item.
        id: ItemId,
        /// The item as it came.
        raw: RawItem,
    },
    /// The model spoke.
    Assistant {
        /// The item.
        id: ItemId,
        /// What it said.
        text: String,
        /// The item as it came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<RawItem>,
    },
    /// The model drew in what it said, or had a tool draw that left nothing else behind. No service takes that back as it
    /// came: it is shown with what is said next.
    Drawn {
        /// The pictures.
        content: Vec<Part>,
    },
    /// The model asked for a tool.
    Call {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments, a JSON text.
        arguments: String,
        /// The provider's name for the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_call_id: Option<String>,
        /// The item as it came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<RawItem>,
    },
    /// The provider ran a tool of its own. Given back only to where it came from.
    Hosted {
        /// The item.
        id: ItemId,
        /// The provider's name for the tool.
        name: String,
        /// The item as it came.
        raw: RawItem,
    },
    /// What the tool gave.
    Result {
        /// The call.
        call_id: CallId,
        /// How it ended.
        status: ResultStatus,
        /// What the model reads of it.
        content: Vec<Part>,
    },
}

impl Entry {
    /// What people and tools gave and models drew: the parts that may be pictures and files.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        match self {
            Self::User { content } | Self::Drawn { content } | Self::Result { content, .. } => content,
            Self::Summary { .. }
            | Self::System { .. }
            | Self::Reasoning { .. }
            | Self::Assistant { .. }
            | Self::Call { .. }
            | Self::Hosted { .. } => &[],
        }
    }

    /// The same, for whoever puts something else in their place.
    pub fn parts_mut(&mut self) -> &mut [Part] {
        match self {
            Self::User { content } | Self::Drawn { content } | Self::Result { content, .. } => content,
            Self::Summary { .. }
            | Self::System { .. }
            | Self::Reasoning { .. }
            | Self::Assistant { .. }
            | Self::Call { .. }
            | Self::Hosted { .. } => &mut [],
        }
    }
}
