//! Parses messages from WebSocket clients, and formats the error event for a rejected message.

use crate::json_body::JsonBody;
use crate::problem::{Problem, ProblemSummary};
use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use model::json::JsonObject;
use protocol::blocks::{BlocksMessage, BlocksMessageHeader, BlocksMessageType, EmptyBlocksMessage};
use serde_json::Value;

/// Parses a message as strictly as a request body.
pub(super) fn parse_client_message(json: JsonBody) -> Result<BlocksMessage, Problem> {
    let BlocksMessageHeader { kind } = json.parse_field("type")?;
    Ok(match kind {
        BlocksMessageType::Chat => BlocksMessage::Chat(json.into_object()?),
        BlocksMessageType::Resume => BlocksMessage::Resume(json.into_object()?),
        BlocksMessageType::ApprovalResponse => BlocksMessage::ApprovalResponse(json.into_object()?),
        BlocksMessageType::Stop => json.into_object().map(|_: EmptyBlocksMessage| BlocksMessage::Stop)?,
        BlocksMessageType::Ping => json.into_object().map(|_: EmptyBlocksMessage| BlocksMessage::Ping)?,
    })
}

/// Members of a problem document that the error event replaces or omits.
const HTTP_ONLY_FIELDS: [&str; 5] = ["type", "title", "status", "code", "detail"];

/// Formats an error event. It keeps the problem's extension members, such as the log's head or the earlier decision.
pub(crate) async fn error_event(problem: Problem, session: Option<&str>) -> String {
    let mut response = problem.into_response();
    let summary = response.extensions_mut().remove::<ProblemSummary>();
    let (code, message) = summary.map(|summary| (summary.code.as_str(), summary.detail)).unwrap_or_default();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut event: JsonObject = serde_json::from_slice(&body).unwrap_or_default();
    event.retain(|name, _| !HTTP_ONLY_FIELDS.contains(&name.as_str()));
    let own = [("type", "error"), ("code", code), ("message", &message)];
    event.extend(
        own.into_iter()
            .chain(session.map(|session| ("session_id", session)))
            .map(|(name, value)| (name.to_owned(), value.into())),
    );
    Value::Object(event).to_string()
}
