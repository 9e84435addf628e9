//! A call that lacks an authorization asks the user for it: a question with the address where users authorize, which is answered
//! when they have. Nothing was called so far, so the call is made again with the answer.
//!
//! The address holds no secret: a reader of the log, such as the viewer of a share, can do nothing with it.

use futures_util::StreamExt as _;
use model::definition::{McpAuth, McpTool, McpTransport};
use model::error::ErrorCode;
use model::event::Question;
use model::ports::BoxStream;
use model::question::{InputRequired, OnDecline, ToolQuestion};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use serde_json::json;

const QUESTION_ID: &str = "mcp_authorization";

/// Where users authorize a server: `POST` gives the URL for their browser, `GET` redirects the browser to it.
#[must_use]
pub fn authorize_path(label: &str) -> String {
    format!("/v1/mcp/{label}/authorize")
}

pub(crate) fn uses_oauth(tool: &McpTool) -> bool {
    let McpTransport::Endpoint(endpoint) = &tool.program.transport else { return false };
    matches!(endpoint.auth.as_deref(), Some(McpAuth::OAuth(_)))
}

/// Removes the answer, which is for nobody else. Returns whether the call has asked before.
pub(crate) fn take_answer(request: &mut ToolRequest) -> bool {
    let Some(answers) = &mut request.answers else { return false };
    let has_asked = answers.answers.remove(QUESTION_ID).is_some();
    if has_asked && answers.answers.is_empty() {
        request.answers = None;
    }
    has_asked
}

/// Asks where the call would fail. A call asks once: a user who approves without having authorized gets the error.
pub(crate) fn ask_for_authorization(
    events: BoxStream<'static, ToolEvent>,
    label: String,
) -> BoxStream<'static, ToolEvent> {
    Box::pin(events.map(move |event| match event {
        ToolEvent::End(output) if is_unauthorized(&output) => ToolEvent::InputRequired(authorization_question(&label)),
        event => event,
    }))
}

fn is_unauthorized(output: &ToolOutput) -> bool {
    output.error.as_ref().is_some_and(|error| error.has_code(ErrorCode::McpUnauthorized))
}

fn authorization_question(label: &str) -> InputRequired {
    let url = authorize_path(label);
    let message =
        format!("`{label}` needs your authorization: `POST {url}` gives the address to open in your browser.");
    let schema = json!({ "type": "object", "properties": {} });
    let question = Question { message, schema: Some(schema), url: Some(url) };
    InputRequired {
        questions: vec![ToolQuestion { id: QUESTION_ID.to_owned(), question }],
        state: None,
        on_decline: OnDecline::Reject,
    }
}
