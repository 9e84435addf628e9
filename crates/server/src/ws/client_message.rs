//! Parses messages from WebSocket clients, and formats the error event for a rejected message.

use crate::json_body::JsonBody;
use crate::problem::Problem;
use gateway::blocks_session::ChatInput;
use model::event::{ApprovalDecision, ApprovalDecisionKind, DisplayMode};
use model::json::JsonObject;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug)]
pub(crate) enum WsClientMessage {
    Chat(WsChat),
    /// Follows an existing session, from a cursor if there is one.
    Resume(WsResume),
    /// Cancels all runs of the session, queued ones included.
    Stop,
    ApprovalResponse(WsApprovalResponse),
    Ping,
}

/// Parsed first: with the type known, an error in the rest of the message can name its field.
#[derive(Debug, Deserialize)]
struct WsMessageHeader {
    #[serde(rename = "type")]
    kind: WsMessageType,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WsMessageType {
    Chat,
    Resume,
    Stop,
    ApprovalResponse,
    Ping,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WsChat {
    #[serde(rename = "type")]
    _kind: WsMessageType,
    pub(crate) session_id: Option<String>,
    pub(crate) content: String,
    /// URLs of files that the agent reads before the message.
    pub(crate) content_urls: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) display_mode: DisplayMode,
    pub(crate) agent: Option<String>,
    /// Token of a share that the new session continues.
    pub(crate) share: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WsResume {
    #[serde(rename = "type")]
    _kind: WsMessageType,
    pub(crate) session_id: String,
    pub(crate) after: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WsApprovalResponse {
    #[serde(rename = "type")]
    _kind: WsMessageType,
    pub(crate) approval_key: String,
    /// Maps, because serde accepts a list for a struct, and a malformed decision must not count as an approval.
    decisions: Vec<JsonObject>,
}

/// A message without fields of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyMessage {
    #[serde(rename = "type")]
    _kind: WsMessageType,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionBody {
    #[serde(rename = "type")]
    kind: ApprovalDecisionKind,
    message: Option<String>,
    args: Option<JsonObject>,
}

impl WsClientMessage {
    /// Parses a message as strictly as a request body.
    pub(crate) fn parse(json: JsonBody) -> Result<Self, Problem> {
        let WsMessageHeader { kind } = json.parse_field("type")?;
        Ok(match kind {
            WsMessageType::Chat => Self::Chat(json.into_object()?),
            WsMessageType::Resume => Self::Resume(json.into_object()?),
            WsMessageType::ApprovalResponse => Self::ApprovalResponse(json.into_object()?),
            WsMessageType::Stop => json.into_object().map(|_: EmptyMessage| Self::Stop)?,
            WsMessageType::Ping => json.into_object().map(|_: EmptyMessage| Self::Ping)?,
        })
    }

    /// Whether the viewer of a share may send this message.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::Resume(_) | Self::Ping)
    }
}

impl WsChat {
    pub(crate) fn into_input(self) -> ChatInput {
        let Self { session_id, content, content_urls, display_mode, agent, share, .. } = self;
        let content_urls = content_urls.unwrap_or_default();
        ChatInput { session_id, content, content_urls, display_mode, agent, share }
    }
}

impl WsApprovalResponse {
    /// Returns the only decision: an approval request is about one call.
    pub(crate) fn into_decision(self) -> Result<ApprovalDecision, Problem> {
        let Ok([decision]) = <[JsonObject; 1]>::try_from(self.decisions) else {
            return Err(Problem::invalid_field("decisions", "exactly one decision is required"));
        };
        let decided = serde_json::from_value(Value::Object(decision));
        let DecisionBody { kind, message, args } =
            decided.map_err(|error| Problem::invalid_field("decisions", error))?;
        if (kind == ApprovalDecisionKind::Edit) != args.is_some() {
            return Err(Problem::invalid_field("decisions", "only the decision `edit` takes `args`"));
        }
        Ok(ApprovalDecision { kind, always: false, message, args: args.map(Value::Object) })
    }
}

/// Formats an error event. It keeps the problem's extension members, such as the log's head or the earlier decision.
pub(crate) fn error_event(problem: Problem, session: Option<&str>) -> String {
    let (summary, mut event) = problem.into_parts();
    let own = [("type", "error"), ("code", summary.code.as_str()), ("message", &summary.detail)];
    let own = own.into_iter().chain(session.map(|session| ("session_id", session)));
    event.extend(own.map(|(name, value)| (name.to_owned(), value.into())));
    Value::Object(event).to_string()
}
