//! The checks of the fuzz targets `request_…`: the body of a request becomes inputs, or an error that names a field in a
//! few words.

use model::event::PendingKind;
use model::json::{ExactObject, ExactValue, JsonObject};
use protocol::agent_runs::CreateAgentRunRequest;
use protocol::agui::{parse_agui_request, parse_agui_stop, parse_tool_message_decision};
use protocol::blocks::{BlocksChat, BlocksMessageHeader};
use protocol::client_input::{InputKind, InvalidField};
use protocol::task::{CreateTaskRequest, SubmittedToolResult, parse_tool_results};

const PARTS_MAX: usize = 64;

pub(crate) fn a_responses_request(bytes: &[u8]) {
    let Some(body) = object(bytes) else { return };
    is_short(protocol::responses::parse_responses_request(&body));
    is_short(protocol::responses::check_metadata(&body));
    if let Some(items) = body.get("input") {
        is_short(protocol::responses::parse_conversation_items(items));
    }
}

pub(crate) fn a_chat_request(bytes: &[u8]) {
    let Some(body) = object(bytes) else { return };
    is_short(protocol::chat::parse_chat_request(&body));
}

pub(crate) fn a_messages_request(bytes: &[u8]) {
    let Some(body) = object(bytes) else { return };
    is_short(protocol::messages::parse_messages_request(&body));
}

pub(crate) fn a_ui_chat_request(bytes: &[u8]) {
    let Some(body) = object(bytes) else { return };
    let parsed = protocol::ui_stream::parse_ui_chat_request(&body);
    if let Ok(request) = &parsed {
        assert!(!request.messages.is_empty(), "a request without a message");
        is_short(request.check_new_messages(0));
    }
    is_short(parsed);
}

pub(crate) fn a_task_request(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<CreateTaskRequest>(bytes) {
        is_short(request.input.into_parts(PARTS_MAX));
    }
    if let Ok(results) = serde_json::from_slice::<Vec<SubmittedToolResult>>(bytes) {
        is_short(parse_tool_results(results, PARTS_MAX));
    }
}

pub(crate) fn an_agent_run_request(bytes: &[u8]) {
    if let Ok(mut request) = serde_json::from_slice::<CreateAgentRunRequest>(bytes) {
        is_short(request.take_input(PARTS_MAX));
    }
}

pub(crate) fn a_blocks_message(bytes: &[u8]) {
    if serde_json::from_slice::<BlocksMessageHeader>(bytes).is_err() {
        return;
    }
    if let Ok(mut chat) = serde_json::from_slice::<BlocksChat>(bytes) {
        is_short(chat.take_input(PARTS_MAX));
    }
}

pub(crate) fn an_agui_request(bytes: &[u8]) {
    let Some(body) = exact_object(bytes) else { return };
    is_short(parse_agui_stop(&body));
    let request = match parse_agui_request(&body) {
        Ok(request) => request,
        Err(error) => return is_short_text(&error.to_string()),
    };
    is_short(request.check_new_messages(0));
    assert_eq!(request.check_new_messages(request.messages.len()), Ok(()));
    let legacy = request.legacy_answer.iter().map(|answer| answer.entries(&["apr_1"]));
    for entries in legacy.chain([Ok(request.answers.clone())]) {
        for entry in entries.iter().flatten() {
            is_short(entry.decision(PendingKind::Approval));
            is_short(entry.decision(PendingKind::Question));
        }
        is_short(entries);
    }
    for message in &request.messages {
        if let InputKind::ToolResult { content, .. } = &message.kind {
            parse_tool_message_decision(content);
        }
    }
}

fn exact_object(bytes: &[u8]) -> Option<ExactObject> {
    match ExactValue::parse(std::str::from_utf8(bytes).ok()?).ok()? {
        ExactValue::Object(body) => Some(body),
        _ => None,
    }
}

fn object(bytes: &[u8]) -> Option<JsonObject> {
    serde_json::from_slice(bytes).ok()
}

/// An error says where and what; it does not repeat the request.
fn is_short<T>(parsed: Result<T, InvalidField>) {
    if let Err(error) = parsed {
        is_short_text(&error.to_string());
    }
}

fn is_short_text(text: &str) {
    assert!(!text.is_empty() && text.len() < 4_096, "{} bytes: {text:.200}", text.len());
}
