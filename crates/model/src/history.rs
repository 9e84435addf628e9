//! The conversation as the model reads it, the same for all providers. `cache` keeps what the next turn has in common with the
//! last one.

mod cache;

pub use cache::{HistoryCache, HistoryText};

use crate::content::ContentPart;
use crate::id::{CallId, ItemId};
use crate::item::ResultStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::sync::Arc;

/// What a model is asked when a conversation is to be replaced by its summary.
pub const SUMMARY_PROMPT: &str = "Sum up the conversation so far for somebody who goes on with it: what was wanted, what \
    was found out and done, what is still open. Keep names, numbers and decisions. Answer with the summary alone.";

/// History from before a run that its thread's log does not have: the client keeps it, or the thread was forked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorHistory {
    pub entries: Vec<HistoryEntry>,
    /// Reference groups in it; their numbers stay valid.
    #[serde(rename = "references")]
    pub reference_count: u32,
}

/// The entries that a turn reads. Those of earlier runs are the thread's own: a turn copies none of them, however long the
/// conversation is.
#[derive(Clone, Debug, Default)]
pub struct SharedHistory(Arc<EntryList>);

#[derive(Debug, Default)]
struct EntryList {
    entries: Vec<Arc<HistoryEntry>>,
    past: Option<PastEntries>,
}

/// The entries at the beginning that the thread has, too. They are the same ones in its next turn.
#[derive(Debug)]
struct PastEntries {
    count: usize,
    cache: HistoryCache,
}

/// The next turn of the thread begins with the same list.
impl Drop for EntryList {
    fn drop(&mut self) {
        if let Some(PastEntries { count, cache }) = self.past.take() {
            self.entries.truncate(count);
            cache.put_entries(std::mem::take(&mut self.entries));
        }
    }
}

impl SharedHistory {
    /// A history whose first `past_count` entries are the thread's own, with what the thread keeps of them.
    pub fn in_thread(entries: Vec<Arc<HistoryEntry>>, past_count: usize, cache: HistoryCache) -> Self {
        let past = Some(PastEntries { count: past_count.min(entries.len()), cache });
        Self(Arc::new(EntryList { entries, past }))
    }

    /// The same history with other entries in place of some.
    #[must_use]
    pub fn with_entries(&self, entries: Vec<Arc<HistoryEntry>>) -> Self {
        let is_same = |(ours, theirs): &(&Arc<HistoryEntry>, &Arc<HistoryEntry>)| Arc::ptr_eq(ours, theirs);
        let past = self.0.past.as_ref().map(|past| {
            let count = self.entries().iter().zip(&entries).take(past.count).take_while(is_same).count();
            PastEntries { count, cache: past.cache.clone() }
        });
        Self(Arc::new(EntryList { entries, past }))
    }

    /// The number of entries at the beginning that the thread's next turn has, too.
    pub fn past_count(&self) -> usize {
        self.0.past.as_ref().map_or(0, |past| past.count)
    }

    /// What the thread keeps of the past entries. `None` for a history of its own.
    pub fn cache(&self) -> Option<&HistoryCache> {
        self.0.past.as_ref().map(|past| &past.cache)
    }

    pub fn iter(&self) -> SharedEntries<'_> {
        self.into_iter()
    }

    pub fn len(&self) -> usize {
        self.entries().len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// The entries. Who has to change some of them changes a copy, with [`Arc::make_mut`].
    pub fn entries(&self) -> &[Arc<HistoryEntry>] {
        &self.0.entries
    }
}

/// Histories are equal if their entries are: the text that is kept of them is a cache.
impl PartialEq for SharedHistory {
    fn eq(&self, other: &Self) -> bool {
        self.entries() == other.entries()
    }
}

/// Copies entries, for what is stored or leaves the process.
pub fn to_owned_entries(entries: &[Arc<HistoryEntry>]) -> Vec<HistoryEntry> {
    entries.iter().map(|entry| HistoryEntry::clone(entry)).collect()
}

/// Iterates over a [`SharedHistory`].
pub type SharedEntries<'a> =
    std::iter::Map<std::slice::Iter<'a, Arc<HistoryEntry>>, fn(&'a Arc<HistoryEntry>) -> &'a HistoryEntry>;

impl<'a> IntoIterator for &'a SharedHistory {
    type Item = &'a HistoryEntry;
    type IntoIter = SharedEntries<'a>;

    fn into_iter(self) -> SharedEntries<'a> {
        self.entries().iter().map(|entry| entry)
    }
}

impl From<Vec<Arc<HistoryEntry>>> for SharedHistory {
    fn from(entries: Vec<Arc<HistoryEntry>>) -> Self {
        Self(Arc::new(EntryList { entries, past: None }))
    }
}

impl From<Vec<HistoryEntry>> for SharedHistory {
    fn from(entries: Vec<HistoryEntry>) -> Self {
        entries.into_iter().map(Arc::new).collect::<Vec<_>>().into()
    }
}

/// One element of the conversation as the model reads it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HistoryEntry {
    /// A summary of everything before it.
    Summary {
        text: String,
    },
    /// A system message of the client.
    System {
        text: String,
    },
    User {
        content: Vec<ContentPart>,
    },
    /// Reasoning; sent back only to the provider and model that produced it.
    Reasoning {
        id: ItemId,
        raw: RawItem,
    },
    Assistant {
        id: ItemId,
        text: String,
        raw: Option<RawItem>,
    },
    /// Images that the model generated in a message, or with a hosted tool that left nothing else. No provider accepts
    /// them back in that form: they are attached to the next user message.
    #[serde(rename = "drawn")]
    GeneratedImages {
        content: Vec<ContentPart>,
    },
    Call {
        call_id: CallId,
        name: String,
        /// A JSON text.
        arguments: String,
        provider_call_id: Option<String>,
        raw: Option<RawItem>,
    },
    /// A tool that the provider ran; sent back only to the provider and model that produced it.
    Hosted {
        id: ItemId,
        name: String,
        raw: RawItem,
    },
    Result {
        call_id: CallId,
        status: ResultStatus,
        content: Vec<ContentPart>,
        /// The safety checks of a computer call that the client acknowledged; `None` if the server ran the call.
        acknowledged_checks: Option<Vec<Value>>,
    },
}

impl HistoryEntry {
    /// The parts that may hold images and files.
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

/// An upstream item, unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawItem {
    /// The provider and model that produced it. Only they receive it back.
    pub origin: String,
    pub item: Value,
}
