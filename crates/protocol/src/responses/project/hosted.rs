//! Tools that the provider ran, as items of a response.
//!
//! Their items are maps, not structs: most members are the provider's own and are passed on as they came.

use super::super::wire::{McpCallError, SERVER_LABEL};
use super::item::{ItemPhase, item_status};
use crate::record_frames::to_json_value;
use crate::tool_searches::{SEARCH_CALL_TYPE, SEARCH_OUTPUT_TYPE, hosted_search_type};
use model::item::{Block, HostedCall, ItemStatus, plain_text};
use model::json::JsonObject;
use serde_json::Value;
use std::borrow::Cow;

/// How the protocol represents a hosted tool.
#[derive(Debug)]
pub(super) struct HostedItemType {
    pub(super) type_name: &'static str,
    /// The states that have an event.
    pub(super) states: &'static [&'static str],
}

const SEARCHES: &[&str] = &["in_progress", "searching", "completed"];
const ENDS: &[&str] = &["in_progress", "completed", "failed"];

/// The item type of a tool. Tools without a type of their own are MCP calls.
pub(super) fn hosted_item_type(name: &str) -> HostedItemType {
    if let Some(type_name) = hosted_search_type(name) {
        return HostedItemType { type_name, states: &[] };
    }
    let (type_name, states) = match name {
        "web_search" => ("web_search_call", SEARCHES),
        "file_search" => ("file_search_call", SEARCHES),
        "code_interpreter" => ("code_interpreter_call", &["in_progress", "interpreting", "completed"] as &[_]),
        "image_generation" => ("image_generation_call", &["in_progress", "generating", "completed"] as &[_]),
        "computer" => ("computer_call", &[] as &[_]),
        "mcp_list_tools" => ("mcp_list_tools", ENDS),
        _ => ("mcp_call", ENDS),
    };
    HostedItemType { type_name, states }
}

pub(super) fn is_mcp_call(call: &HostedCall) -> bool {
    hosted_item_type(&call.name).type_name == "mcp_call"
}

pub(super) fn hosted_item(call: &HostedCall, phase: ItemPhase) -> JsonObject {
    let type_name = hosted_item_type(&call.name).type_name;
    let mut item = action_fields(call, type_name);
    item.insert("id".to_owned(), call.id.as_str().into());
    item.insert("type".to_owned(), type_name.into());
    item.insert("status".to_owned(), hosted_status(call, type_name, phase).into());
    if type_name == "web_search_call" {
        let action = item.entry("action").or_insert_with(|| object_with("query", "".into()));
        if let Some(action) = action.as_object_mut() {
            action.entry("type").or_insert_with(|| "search".into());
        }
    }
    for (name, value) in default_fields(call, type_name, phase) {
        item.entry(name).or_insert(value);
    }
    item
}

/// Defaults for required members that the provider left out.
fn default_fields(call: &HostedCall, type_name: &str, phase: ItemPhase) -> Vec<(&'static str, Value)> {
    let empty_list = || Value::Array(Vec::new());
    match type_name {
        "web_search_call" => Vec::new(),
        "file_search_call" => vec![("queries", empty_list()), ("results", Value::Null)],
        "code_interpreter_call" => {
            vec![("container_id", "".into()), ("code", Value::Null), ("outputs", interpreter_outputs(call))]
        }
        "image_generation_call" => vec![("result", generated_image(call).into())],
        "computer_call" => vec![("call_id", call.id.as_str().into()), ("pending_safety_checks", empty_list())],
        SEARCH_CALL_TYPE => {
            vec![("arguments", call.arguments()), ("call_id", Value::Null), ("execution", "server".into())]
        }
        SEARCH_OUTPUT_TYPE => {
            vec![("call_id", Value::Null), ("execution", "server".into()), ("tools", empty_list())]
        }
        "mcp_list_tools" => {
            vec![("server_label", call.server_label().unwrap_or(SERVER_LABEL).into()), ("tools", empty_list())]
        }
        _ => vec![
            ("name", call.tool_name().into()),
            ("server_label", call.server_label().unwrap_or(SERVER_LABEL).into()),
            ("arguments", hosted_arguments(call).into()),
            ("output", hosted_output(call, phase)),
            ("error", hosted_error(call)),
            ("approval_request_id", Value::Null),
        ],
    }
}

fn object_with(name: &str, value: Value) -> Value {
    JsonObject::from_iter([(name.to_owned(), value)]).into()
}

/// The provider's members. An `action` that was the only one is logged without its name, and gets it back here.
fn action_fields(call: &HostedCall, type_name: &str) -> JsonObject {
    let named = |action: &JsonObject, keys: &[&str]| keys.iter().any(|key| action.contains_key(*key));
    match (&call.action, type_name) {
        (None, _) => JsonObject::new(),
        (Some(Value::Object(action)), "web_search_call") if named(action, &["input"]) => {
            JsonObject::from_iter([("action".to_owned(), search_action(call))])
        }
        (Some(Value::Object(action)), "web_search_call") if !named(action, &["action", "results"]) => {
            JsonObject::from_iter([("action".to_owned(), Value::Object(action.clone()))])
        }
        (Some(Value::Object(action)), "computer_call")
            if !named(action, &["action", "actions", "pending_safety_checks"]) =>
        {
            JsonObject::from_iter([("action".to_owned(), Value::Object(action.clone()))])
        }
        (Some(Value::Object(action)), SEARCH_CALL_TYPE) if named(action, &["input"]) => JsonObject::new(),
        // Only an MCP call of the provider is logged under the names of the protocol.
        (Some(_), "mcp_call") if call.name != "mcp" => JsonObject::new(),
        (Some(Value::Object(action)), _) => action.clone(),
        (Some(action), _) => JsonObject::from_iter([("action".to_owned(), action.clone())]),
    }
}

/// A search of a provider that logs what the tool was given apart from what it returned.
fn search_action(call: &HostedCall) -> Value {
    let mut action = match call.arguments() {
        Value::Object(action) => action,
        other => JsonObject::from_iter([("query".to_owned(), other)]),
    };
    let url = |found: &Value| Some(found.get("url")?.as_str()?.to_owned());
    let source =
        |url: String| JsonObject::from_iter([("type".to_owned(), "url".into()), ("url".to_owned(), url.into())]);
    let sources = call.output().and_then(Value::as_array).into_iter().flatten().filter_map(url).map(source);
    let sources: Vec<Value> = sources.map(Value::Object).collect();
    if !sources.is_empty() {
        action.insert("sources".to_owned(), sources.into());
    }
    action.into()
}

/// Maps the status to one that items of this type may have.
fn hosted_status<'a>(call: &'a HostedCall, type_name: &str, phase: ItemPhase) -> &'a str {
    let lacks_incomplete = matches!(type_name, "web_search_call" | "image_generation_call");
    match (item_status(call.status, phase), call.status) {
        (_, Some(ItemStatus::Failed)) if matches!(type_name, SEARCH_CALL_TYPE | SEARCH_OUTPUT_TYPE) => "incomplete",
        (_, Some(ItemStatus::Failed)) => "failed",
        ("incomplete", _) if lacks_incomplete => "failed",
        ("in_progress", _) => match call.state.as_deref() {
            Some(state @ ("searching" | "generating" | "interpreting")) => state,
            _ => "in_progress",
        },
        (status, _) => status,
    }
}

/// The arguments of an MCP call, as text.
pub(super) fn hosted_arguments(call: &HostedCall) -> String {
    match streamed_input(call) {
        Some(input) => input.text.to_owned(),
        None if call.name == "mcp" => String::new(),
        None => call.arguments().to_string(),
    }
}

fn hosted_output(call: &HostedCall, phase: ItemPhase) -> Value {
    let blocks = call.block_list.as_deref().unwrap_or_default();
    match call.output() {
        _ if phase == ItemPhase::Open => Value::Null,
        Some(output) if blocks.is_empty() && !call.has_failed() => json_text(output).into(),
        _ if blocks.is_empty() => Value::Null,
        _ => plain_text(blocks).into(),
    }
}

/// The error of an MCP call, in the shape that the server's own calls have.
fn hosted_error(call: &HostedCall) -> Value {
    let error = call.error().map(|error| to_json_value(&McpCallError::new(&json_text(error))));
    error.unwrap_or(Value::Null)
}

/// A text as it is, anything else as JSON.
fn json_text(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| value.to_string().into(), Cow::from)
}

/// What the model has written for a hosted tool so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StreamedInput<'a> {
    pub(super) kind: HostedInputKind,
    /// The prefix of its events.
    pub(super) event: &'static str,
    pub(super) text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostedInputKind {
    Code,
    Arguments,
}

/// `None` for tools whose input has no events, or is sent in one piece.
pub(super) fn streamed_input(call: &HostedCall) -> Option<StreamedInput<'_>> {
    let (kind, event, field) = match call.name.as_str() {
        "code_interpreter" => (HostedInputKind::Code, "response.code_interpreter_call_code", "code"),
        "mcp" => (HostedInputKind::Arguments, "response.mcp_call_arguments", "arguments"),
        _ => return None,
    };
    Some(StreamedInput { kind, event, text: call.action.as_ref()?.get(field)?.as_str()? })
}

fn interpreter_outputs(call: &HostedCall) -> Value {
    let image =
        |url: &str| JsonObject::from_iter([("type".to_owned(), "image".into()), ("url".to_owned(), url.into())]).into();
    let images: Vec<Value> = image_urls(call).map(image).collect();
    if images.is_empty() { Value::Null } else { Value::Array(images) }
}

fn generated_image(call: &HostedCall) -> Option<&str> {
    image_urls(call).next().map(image_base64_or_url)
}

fn image_urls(call: &HostedCall) -> impl Iterator<Item = &str> {
    call.block_list.iter().flatten().filter_map(|block| match block {
        Block::Image(image) => Some(image.image_url.url.as_str()).filter(|url| !url.is_empty()),
        _ => None,
    })
}

/// The image in base64 if the URL contains it, else the URL.
pub(super) fn image_base64_or_url(url: &str) -> &str {
    let data = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    data.map_or(url, |(_, base64)| base64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(name: &str, action: Value) -> HostedCall {
        let (id, name, action) = ("hc_R1".into(), name.to_owned(), Some(action).filter(|action| !action.is_null()));
        HostedCall { id, name, action, block_list: None, state: None, status: None, reason: None, agent: None }
    }

    #[test]
    fn a_hosted_call_logged_without_a_name_gets_one() {
        let search = hosted_item(&call("web_search", json!({"query": "x"})), ItemPhase::Done);
        assert_eq!(search["action"], json!({"type": "search", "query": "x"}));
        let page = json!({"type": "open_page", "url": "https://example.org"});
        assert_eq!(hosted_item(&call("web_search", page.clone()), ItemPhase::Done)["action"], page);
        let click = json!({"type": "click", "x": 1});
        assert_eq!(hosted_item(&call("computer", click.clone()), ItemPhase::Done)["action"], click);
        let many = hosted_item(&call("computer", json!({ "actions": [click] })), ItemPhase::Done);
        assert_eq!((&many["actions"], many.get("action")), (&json!([click]), None));
        let files = hosted_item(&call("file_search", json!({"queries": ["x"]})), ItemPhase::Done);
        assert_eq!((&files["queries"], &files["results"]), (&json!(["x"]), &Value::Null));
    }

    #[test]
    fn a_hosted_tool_without_a_wire_type_is_an_mcp_call() {
        let shell = hosted_item(&call("shell", json!({"commands": ["ls"]})), ItemPhase::Done);
        assert_eq!((&shell["type"], &shell["name"]), (&json!("mcp_call"), &json!("shell")));
        assert_eq!(shell["arguments"], r#"{"commands":["ls"]}"#);
        let theirs = json!({"name": "roll", "server_label": "dice", "arguments": "{}", "output": "4"});
        let theirs = hosted_item(&call("mcp", theirs), ItemPhase::Done);
        assert_eq!((&theirs["server_label"], &theirs["output"]), (&json!("dice"), &json!("4")));
    }

    #[test]
    fn an_mcp_call_has_the_names_of_its_server_from_the_start() {
        let begun = call("mcp", json!({"name": "ask", "server_label": "deepwiki"}));
        let added = hosted_item(&begun, ItemPhase::Open);
        assert_eq!((&added["name"], &added["server_label"]), (&json!("ask"), &json!("deepwiki")));
        assert_eq!((&added["arguments"], &added["output"]), (&json!(""), &Value::Null));
    }

    #[test]
    fn a_failed_call_has_its_error() {
        let action = json!({"server_name": "wiki", "input": {"q": 1}, "result": [{"type": "text", "text": "no page"}]});
        let failed = HostedCall {
            state: Some("failed".to_owned()),
            status: Some(ItemStatus::Failed),
            ..call("ask", action.clone())
        };
        let item = hosted_item(&failed, ItemPhase::Done);
        assert_eq!((&item["status"], &item["server_label"]), (&json!("failed"), &json!("wiki")));
        assert_eq!((&item["arguments"], &item["output"]), (&json!("{\"q\":1}"), &Value::Null));
        assert_eq!(item["error"]["content"][0]["text"], r#"[{"text":"no page","type":"text"}]"#);
        let done = hosted_item(&call("ask", action), ItemPhase::Done);
        assert_eq!((&done["error"], &done["output"]), (&Value::Null, &json!(r#"[{"text":"no page","type":"text"}]"#)));
    }

    #[test]
    fn a_search_has_its_query_and_its_sources_whoever_ran_it() {
        let result = json!([{"type": "web_search_result", "url": "https://example.org", "title": "Example"}]);
        let search = call("web_search", json!({"input": {"query": "rivers"}, "result": result}));
        let sources = json!([{"type": "url", "url": "https://example.org"}]);
        let expected = json!({"type": "search", "query": "rivers", "sources": sources});
        assert_eq!(hosted_item(&search, ItemPhase::Done)["action"], expected);
        let open = hosted_item(&call("web_search", json!({"input": {"query": "rivers"}})), ItemPhase::Open);
        assert_eq!(open["action"], json!({"type": "search", "query": "rivers"}));
    }

    #[test]
    fn an_image_is_base64_or_a_url() {
        assert_eq!(image_base64_or_url("data:image/png;base64,AAAA"), "AAAA");
        assert_eq!(image_base64_or_url("/v1/blobs/ab12"), "/v1/blobs/ab12");
        assert_eq!(image_base64_or_url("https://example.org/a.png"), "https://example.org/a.png");
    }
}
