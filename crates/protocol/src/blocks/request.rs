//! The messages that a client sends over its socket.
//!
//! Unknown members of a message are ignored: front ends of this protocol send members of their own. A decision is read
//! strictly, because a misspelled member could change what is approved.

use crate::client_input::InvalidField;
use model::content::{ContentPart, FileRef};
use model::event::{ApprovalDecision, ApprovalDecisionKind, DisplayMode};
use model::json::{ExactObject, ExactValue};
use serde::Deserialize;

#[derive(Debug)]
pub enum BlocksMessage {
    Chat(BlocksChat),
    /// Follows an existing session, from a cursor if there is one.
    Resume(BlocksResume),
    /// Stops what the client sees of a session.
    Stop(BlocksStop),
    ApprovalResponse(BlocksApprovalResponse),
    Ping,
}

impl BlocksMessage {
    /// Whether the viewer of a share may send this message.
    pub const fn is_read_only(&self) -> bool {
        matches!(self, Self::Resume(_) | Self::Ping)
    }
}

/// Parsed first: with the type known, an error in the rest of the message can name its field.
#[derive(Debug, Deserialize)]
pub struct BlocksMessageHeader {
    #[serde(rename = "type")]
    pub kind: BlocksMessageType,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlocksMessageType {
    Chat,
    Resume,
    Stop,
    ApprovalResponse,
    Ping,
}

#[derive(Debug, Deserialize)]
pub struct BlocksChat {
    #[serde(default)]
    pub session_id: Option<String>,
    content: String,
    /// URLs of files that the agent reads before the message.
    #[serde(default)]
    content_urls: Option<Vec<String>>,
    #[serde(default)]
    pub display_mode: DisplayMode,
    #[serde(default)]
    pub agent: Option<String>,
    /// Token of a share that the new session continues.
    #[serde(default)]
    pub share: Option<String>,
}

impl BlocksChat {
    /// Takes the content out of the message: files first, then the text about them.
    pub fn take_input(&mut self, files_max: usize) -> Result<Vec<ContentPart>, InvalidField> {
        let urls = self.content_urls.take().unwrap_or_default();
        if urls.len() > files_max {
            let reason = format!("{} files; the maximum is {files_max}", urls.len());
            return Err(InvalidField::new("content_urls", reason));
        }
        let file = |url| ContentPart::File { file: FileRef { url: Some(url), ..FileRef::default() } };
        let text = Some(std::mem::take(&mut self.content)).filter(|text| !text.is_empty()).map(ContentPart::text);
        Ok(urls.into_iter().map(file).chain(text).collect())
    }
}

#[derive(Debug, Deserialize)]
pub struct BlocksResume {
    pub session_id: String,
    #[serde(default)]
    pub after: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct BlocksApprovalResponse {
    pub approval_key: String,
    /// By default the session that the socket follows, if it follows one.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Maps, because serde accepts a list for a struct, and a malformed decision must not count as an approval.
    decisions: Vec<ExactObject>,
}

#[derive(Debug, Deserialize)]
pub struct BlocksStop {
    /// By default the session that the socket follows.
    #[serde(default)]
    pub session_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionBody {
    #[serde(rename = "type")]
    kind: ApprovalDecisionKind,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    args: Option<ExactObject>,
}

impl BlocksApprovalResponse {
    /// Returns the only decision: an approval request is about one call.
    pub fn into_decision(self) -> Result<ApprovalDecision, InvalidField> {
        let invalid = |reason: &str| InvalidField::new("decisions", reason);
        let Ok([decision]) = <[ExactObject; 1]>::try_from(self.decisions) else {
            return Err(invalid("exactly one decision is required"));
        };
        let decision = DecisionBody::deserialize(ExactValue::Object(decision));
        let DecisionBody { kind, message, args } = decision.map_err(|error| invalid(&error.to_string()))?;
        // Whether `approve` takes them depends on what is asked.
        let fits = match kind {
            ApprovalDecisionKind::Edit => args.is_some(),
            ApprovalDecisionKind::Approve => true,
            ApprovalDecisionKind::Reject => args.is_none(),
        };
        if !fits {
            return Err(invalid("only `edit` takes `args`, and the `approve` that answers a question"));
        }
        Ok(ApprovalDecision { kind, always: false, message, args: args.map(ExactValue::Object) })
    }
}
