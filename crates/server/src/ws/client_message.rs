//! Parses messages from WebSocket clients, and formats the error event for a rejected message.

use crate::json_body::JsonBody;
use crate::problem::Problem;
use model::json::ExactValue;
use protocol::blocks::{BlocksMessage, BlocksMessageHeader, BlocksMessageType};

/// Parses a message by its type. Members that the type does not have are ignored.
pub(super) fn parse_client_message(json: JsonBody) -> Result<BlocksMessage, Problem> {
    let BlocksMessageHeader { kind } = json.parse_field("type")?;
    Ok(match kind {
        BlocksMessageType::Chat => BlocksMessage::Chat(json.into_object()?),
        BlocksMessageType::Resume => BlocksMessage::Resume(json.into_object()?),
        BlocksMessageType::ApprovalResponse => BlocksMessage::ApprovalResponse(json.into_object()?),
        BlocksMessageType::Stop => BlocksMessage::Stop(json.into_object()?),
        BlocksMessageType::Ping => BlocksMessage::Ping,
    })
}

/// Formats an error event. It keeps the problem's extension members, such as the log's head or the earlier decision.
pub(crate) fn error_event(problem: Problem, session: Option<&str>) -> String {
    let (summary, mut event) = problem.into_parts();
    let own = [("type", "error"), ("code", summary.code.as_str()), ("message", &summary.detail)];
    let own = own.into_iter().chain(session.map(|session| ("session_id", session)));
    event.extend(own.map(|(name, value)| (name.to_owned(), ExactValue::String(value.to_owned()))));
    ExactValue::Object(event).to_string()
}
