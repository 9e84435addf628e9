//! What a client says in a request of a protocol that is not our own, whichever it is: one list, in the order in which it
//! was said. A client may bring its whole history; what of it we know already is found by the ids that it gives back.

use model::CallId;
use model::content::{ContentPart, ImageDetail};
use model::history::{HistoryEntry, PriorHistory};
use model::item::ResultStatus;
use model::{ItemId, TaskId};

/// Something that a client said.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientInput {
    /// What the client calls it. An id of ours names its run.
    pub id: Option<String>,
    /// What it is.
    pub kind: InputKind,
}

/// What was said.
#[derive(Clone, Debug, PartialEq)]
pub enum InputKind {
    /// The client's operator spoke.
    System(String),
    /// A person spoke.
    User(Vec<ContentPart>),
    /// A model had spoken.
    Assistant(String),
    /// A model had drawn.
    GeneratedImages(Vec<ContentPart>),
    /// A model had asked for a tool.
    ToolCall {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The arguments, a JSON text.
        arguments: String,
    },
    /// What a tool gave: an answer to a call that waits for it, or history.
    ToolResult {
        /// The call.
        call_id: String,
        /// What it gave.
        content: Vec<ContentPart>,
        /// Did the tool fail?
        failed: bool,
    },
    /// A person decided: an answer to a question that waits for it, or history.
    ApprovalDecision {
        /// The question.
        key: String,
        /// Yes or no.
        approve: bool,
        /// Why.
        reason: Option<String>,
    },
    /// Something that only its id tells of: thoughts, a reference, what a provider did itself.
    ItemReference,
}

impl ClientInput {
    /// The run that it names, if its id, or that of the call or question that it is about, is one of ours.
    #[must_use]
    pub fn run_id(&self) -> Option<TaskId> {
        let about = match &self.kind {
            InputKind::ToolCall { call_id, .. } | InputKind::ToolResult { call_id, .. } => Some(call_id),
            InputKind::ApprovalDecision { key, .. } => Some(key),
            InputKind::System(_)
            | InputKind::User(_)
            | InputKind::Assistant(_)
            | InputKind::GeneratedImages(_)
            | InputKind::ItemReference => None,
        };
        self.id.iter().chain(about).find_map(|id| TaskId::from(id.as_str()).run_id())
    }
}

/// What is new in a request: what was said before, and what a person says now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewInput {
    /// What was said before it that the log does not have.
    pub history: Vec<HistoryEntry>,
    /// What is said now: the words of people at the end.
    pub input: Vec<ContentPart>,
}

impl NewInput {
    /// Tells the two apart. What people say at the very end is what they say now.
    #[must_use]
    pub fn from_client_input(said: &[ClientInput]) -> Self {
        let is_now = |said: &ClientInput| matches!(said.kind, InputKind::User(_));
        let now = said.iter().rev().take_while(|said| is_now(said)).count();
        let (before, now) = said.split_at(said.len() - now);
        let input = now.iter().flat_map(|said| match &said.kind {
            InputKind::User(parts) => parts.clone(),
            _ => Vec::new(),
        });
        Self { history: before.iter().enumerate().filter_map(history_entry).collect(), input: input.collect() }
    }

    /// The history that a run is given, where there is any.
    #[must_use]
    pub fn prior_history(&self) -> Option<PriorHistory> {
        (!self.history.is_empty()).then(|| PriorHistory { entries: self.history.clone(), reference_count: 0 })
    }
}

fn history_entry((place, said): (usize, &ClientInput)) -> Option<HistoryEntry> {
    Some(match &said.kind {
        InputKind::System(text) => HistoryEntry::System { text: text.clone() },
        InputKind::User(content) => HistoryEntry::User { content: content.clone() },
        InputKind::Assistant(text) => {
            let id = said.id.clone().unwrap_or_else(|| format!("msg_{place}"));
            HistoryEntry::Assistant { id: ItemId::from(id), text: text.clone(), raw: None }
        }
        InputKind::GeneratedImages(content) => HistoryEntry::GeneratedImages { content: content.clone() },
        InputKind::ToolCall { call_id, name, arguments } => HistoryEntry::Call {
            call_id: CallId::from(call_id.as_str()),
            name: name.clone(),
            arguments: arguments.clone(),
            provider_call_id: None,
            raw: None,
        },
        InputKind::ToolResult { call_id, content, failed } => HistoryEntry::Result {
            call_id: CallId::from(call_id.as_str()),
            status: if *failed { ResultStatus::Failed } else { ResultStatus::Completed },
            content: content.clone(),
        },
        InputKind::ApprovalDecision { .. } | InputKind::ItemReference => return None,
    })
}

/// Bytes that came as base64, as an address: some clients say what they are, and some do not.
pub(crate) fn to_data_url(data: &str) -> String {
    if data.starts_with("data:") { data.to_owned() } else { format!("data:application/octet-stream;base64,{data}") }
}

/// A picture, and how closely the model is to look at it.
pub(crate) fn with_image_detail(
    mut part: ContentPart,
    word: Option<&str>,
    at: &str,
) -> Result<ContentPart, InvalidField> {
    if let (ContentPart::ImageUrl { image_url, .. }, Some(word)) = (&mut part, word) {
        image_url.detail =
            ImageDetail::parse(word).map_err(|error| InvalidField::new(format!("{at}.detail"), error.to_string()))?;
    }
    Ok(part)
}

/// Why a request cannot be taken: which field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {reason}")]
pub struct InvalidField {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl InvalidField {
    /// A field, and what is wrong with it.
    #[must_use]
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), reason: why.into() }
    }
}
