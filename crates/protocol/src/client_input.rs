//! The input of a request that may carry a history, in one form for all such protocols: a list in the order of the
//! conversation.
//!
//! A client may send its whole history; the ids in it identify the items that the log already has.

use model::CallId;
use model::content::{ContentPart, ImageDetail};
use model::event::ApprovalDecision;
use model::history::{HistoryEntry, PriorHistory};
use model::item::ResultStatus;
use model::{ItemId, TaskId};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct ClientInput {
    /// The client's id. An id of this server contains its run.
    pub id: Option<String>,
    pub kind: InputKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum InputKind {
    System(String),
    User(Vec<ContentPart>),
    Assistant(String),
    /// Images that a model generated.
    GeneratedImages(Vec<ContentPart>),
    ToolCall {
        call_id: String,
        name: String,
        /// JSON.
        arguments: String,
    },
    /// The answer to a pending call, or history.
    ToolResult {
        call_id: String,
        content: Vec<ContentPart>,
        failed: bool,
        /// The safety checks of a computer call that somebody has acknowledged.
        acknowledged_checks: Vec<Value>,
    },
    /// The answer to a pending approval request, or history.
    ApprovalDecision {
        key: String,
        decision: ApprovalDecision,
    },
    /// A summary of what was said before it, sealed by the server that wrote it.
    SealedSummary {
        /// Where the request has it.
        field: String,
        sealed: String,
    },
    /// A summary whose seal was verified.
    Summary {
        text: String,
        /// Reference groups that it may name.
        reference_count: u32,
    },
    /// An item that only its id identifies: reasoning, a reference, a hosted call.
    ItemReference,
}

impl ClientInput {
    /// The run that its id, or the id of its call or approval request, belongs to, if this server gave the id.
    pub fn run_id(&self) -> Option<TaskId> {
        let answered = match &self.kind {
            InputKind::ToolCall { call_id, .. } | InputKind::ToolResult { call_id, .. } => Some(call_id),
            InputKind::ApprovalDecision { key, .. } => Some(key),
            InputKind::System(_)
            | InputKind::User(_)
            | InputKind::Assistant(_)
            | InputKind::GeneratedImages(_)
            | InputKind::ItemReference => None,
            // Its run is that which wrote the summary, and no part of the conversation.
            InputKind::SealedSummary { .. } | InputKind::Summary { .. } => return None,
        };
        self.id.iter().chain(answered).find_map(|id| TaskId::from(id.as_str()).run_id())
    }
}

/// The new part of a request: history that the log does not have, and the user's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewInput {
    pub history: Vec<HistoryEntry>,
    /// The user messages at the end of the request.
    pub input: Vec<ContentPart>,
    /// Reference groups of what the history sums up.
    reference_count: u32,
}

impl NewInput {
    pub fn from_client_input(inputs: &[ClientInput]) -> Self {
        let is_user = |input: &ClientInput| matches!(input.kind, InputKind::User(_));
        let user_count = inputs.iter().rev().take_while(|input| is_user(input)).count();
        let (history, new) = inputs.split_at(inputs.len() - user_count);
        let input = new.iter().flat_map(|input| match &input.kind {
            InputKind::User(parts) => parts.clone(),
            _ => Vec::new(),
        });
        let reference_count = history.iter().map(|input| match input.kind {
            InputKind::Summary { reference_count, .. } => reference_count,
            _ => 0,
        });
        Self {
            history: history_entries(history),
            input: input.collect(),
            reference_count: reference_count.max().unwrap_or_default(),
        }
    }

    /// The history for a new run, if there is any.
    pub fn prior_history(&self) -> Option<PriorHistory> {
        let (entries, reference_count) = (self.history.clone(), self.reference_count);
        (!self.history.is_empty()).then_some(PriorHistory { entries, reference_count })
    }
}

/// The items as the model reads them.
pub fn history_entries(inputs: &[ClientInput]) -> Vec<HistoryEntry> {
    inputs.iter().enumerate().filter_map(history_entry).collect()
}

fn history_entry((index, input): (usize, &ClientInput)) -> Option<HistoryEntry> {
    Some(match &input.kind {
        InputKind::System(text) => HistoryEntry::System { text: text.clone() },
        InputKind::User(content) => HistoryEntry::User { content: content.clone() },
        InputKind::Assistant(text) => {
            let id = input.id.clone().unwrap_or_else(|| format!("msg_{index}"));
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
        InputKind::ToolResult { call_id, content, failed, .. } => HistoryEntry::Result {
            call_id: CallId::from(call_id.as_str()),
            status: if *failed { ResultStatus::Failed } else { ResultStatus::Completed },
            content: content.clone(),
            acknowledged_checks: None,
        },
        InputKind::Summary { text, .. } => HistoryEntry::Summary { text: text.clone() },
        InputKind::ApprovalDecision { .. } | InputKind::SealedSummary { .. } | InputKind::ItemReference => return None,
    })
}

/// Base64 data as a data URL. Some clients send it as one, and some do not.
pub(crate) fn to_data_url(data: &str) -> String {
    if data.starts_with("data:") { data.to_owned() } else { format!("data:application/octet-stream;base64,{data}") }
}

/// Sets the detail level of an image.
pub(crate) fn with_image_detail(
    mut part: ContentPart,
    detail: Option<&str>,
    at: &str,
) -> Result<ContentPart, InvalidField> {
    if let (ContentPart::ImageUrl { image_url, .. }, Some(detail)) = (&mut part, detail) {
        image_url.detail =
            ImageDetail::parse(detail).map_err(|error| InvalidField::new(format!("{at}.detail"), error.to_string()))?;
    }
    Ok(part)
}

/// A field of a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {reason}")]
pub struct InvalidField {
    pub field: String,
    pub reason: String,
}

impl InvalidField {
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}
