//! What a client says in a request of a protocol that is not our own, whichever it is: one list, in the order in which it
//! was said. A client may bring its whole history; what of it we know already is found by the ids that it gives back.

use model::CallId;
use model::block::{ContentPart, ImageDetail};
use model::history::{HistoryEntry, PriorHistory};
use model::item::ResultStatus;
use model::{ItemId, TaskId};

/// Something that a client said.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// What the client calls it. An id of ours names its run.
    pub id: Option<String>,
    /// What it is.
    pub what: What,
}

/// What was said.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The client's operator spoke.
    System(String),
    /// A person spoke.
    User(Vec<ContentPart>),
    /// A model had spoken.
    Assistant(String),
    /// A model had drawn.
    Drawn(Vec<ContentPart>),
    /// A model had asked for a tool.
    Call {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The arguments, a JSON text.
        arguments: String,
    },
    /// What a tool gave: an answer to a call that waits for it, or history.
    Result {
        /// The call.
        call_id: String,
        /// What it gave.
        content: Vec<ContentPart>,
        /// Did the tool fail?
        failed: bool,
    },
    /// A person decided: an answer to a question that waits for it, or history.
    Decision {
        /// The question.
        key: String,
        /// Yes or no.
        approve: bool,
        /// Why.
        reason: Option<String>,
    },
    /// Something that only its id tells of: thoughts, a reference, what a provider did itself.
    Other,
}

impl Said {
    /// The run that it names, if its id, or that of the call or question that it is about, is one of ours.
    #[must_use]
    pub fn run(&self) -> Option<TaskId> {
        let about = match &self.what {
            What::Call { call_id, .. } | What::Result { call_id, .. } => Some(call_id),
            What::Decision { key, .. } => Some(key),
            What::System(_) | What::User(_) | What::Assistant(_) | What::Drawn(_) | What::Other => None,
        };
        self.id.iter().chain(about).find_map(|id| TaskId::from(id.as_str()).run_id())
    }
}

/// What is new in a request: what was said before, and what a person says now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// What was said before it that the log does not have.
    pub before: Vec<HistoryEntry>,
    /// What is said now: the words of people at the end.
    pub input: Vec<ContentPart>,
}

impl News {
    /// Tells the two apart. What people say at the very end is what they say now.
    #[must_use]
    pub fn of(said: &[Said]) -> Self {
        let is_now = |said: &Said| matches!(said.what, What::User(_));
        let now = said.iter().rev().take_while(|said| is_now(said)).count();
        let (before, now) = said.split_at(said.len() - now);
        let input = now.iter().flat_map(|said| match &said.what {
            What::User(parts) => parts.clone(),
            _ => Vec::new(),
        });
        Self { before: before.iter().enumerate().filter_map(entry).collect(), input: input.collect() }
    }

    /// The history that a run is given, where there is any.
    #[must_use]
    pub fn before(&self) -> Option<PriorHistory> {
        (!self.before.is_empty()).then(|| PriorHistory { entries: self.before.clone(), reference_count: 0 })
    }
}

fn entry((place, said): (usize, &Said)) -> Option<HistoryEntry> {
    Some(match &said.what {
        What::System(text) => HistoryEntry::System { text: text.clone() },
        What::User(content) => HistoryEntry::User { content: content.clone() },
        What::Assistant(text) => {
            let id = said.id.clone().unwrap_or_else(|| format!("msg_{place}"));
            HistoryEntry::Assistant { id: ItemId::from(id), text: text.clone(), raw: None }
        }
        What::Drawn(content) => HistoryEntry::GeneratedImages { content: content.clone() },
        What::Call { call_id, name, arguments } => HistoryEntry::Call {
            call_id: CallId::from(call_id.as_str()),
            name: name.clone(),
            arguments: arguments.clone(),
            provider_call_id: None,
            raw: None,
        },
        What::Result { call_id, content, failed } => HistoryEntry::Result {
            call_id: CallId::from(call_id.as_str()),
            status: if *failed { ResultStatus::Failed } else { ResultStatus::Completed },
            content: content.clone(),
        },
        What::Decision { .. } | What::Other => return None,
    })
}

/// Bytes that came as base64, as an address: some clients say what they are, and some do not.
pub(crate) fn as_address(data: &str) -> String {
    if data.starts_with("data:") { data.to_owned() } else { format!("data:application/octet-stream;base64,{data}") }
}

/// A picture, and how closely the model is to look at it.
pub(crate) fn looked_at(mut part: ContentPart, word: Option<&str>, at: &str) -> Result<ContentPart, Wrong> {
    if let (ContentPart::ImageUrl { image_url, .. }, Some(word)) = (&mut part, word) {
        image_url.detail =
            ImageDetail::parse(word).map_err(|error| Wrong::new(format!("{at}.detail"), error.to_string()))?;
    }
    Ok(part)
}

/// Why a request cannot be taken: which field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {why}")]
pub struct Wrong {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

impl Wrong {
    /// A field, and what is wrong with it.
    #[must_use]
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}
