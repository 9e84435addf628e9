//! What the model is given of what was said and done: one list, whoever the provider is.

use crate::content::ContentPart;
use crate::id::{CallId, ItemId};
use crate::item::ResultStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was said and done before a run that its thread's log does not have: a client kept it itself, or the thread was
/// forked from another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorHistory {
    /// What was said and done.
    pub entries: Vec<HistoryEntry>,
    /// How many reference groups there were: their numbers stay good.
    #[serde(rename = "references")]
    pub reference_count: u32,
}

/// One element of the conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HistoryEntry {
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
        content: Vec<ContentPart>,
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
    #[serde(rename = "drawn")]
    GeneratedImages {
        /// The pictures.
        content: Vec<ContentPart>,
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
        content: Vec<ContentPart>,
    },
}

impl HistoryEntry {
    /// What people and tools gave and models drew: the parts that may be pictures and files.
    #[must_use]
    pub fn parts(&self) -> &[ContentPart] {
        match self {
            Self::User { content } | Self::GeneratedImages { content } | Self::Result { content, .. } => content,
            Self::Summary { .. }
            | Self::System { .. }
            | Self::Reasoning { .. }
            | Self::Assistant { .. }
            | Self::Call { .. }
            | Self::Hosted { .. } => &[],
        }
    }

    /// The same, for whoever puts something else in their place.
    pub fn parts_mut(&mut self) -> &mut [ContentPart] {
        match self {
            Self::User { content } | Self::GeneratedImages { content } | Self::Result { content, .. } => content,
            Self::Summary { .. }
            | Self::System { .. }
            | Self::Reasoning { .. }
            | Self::Assistant { .. }
            | Self::Call { .. }
            | Self::Hosted { .. } => &mut [],
        }
    }
}

/// An upstream item as it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawItem {
    /// Which provider and model it came from: only they are given it back.
    pub origin: String,
    /// The item.
    pub item: Value,
}
