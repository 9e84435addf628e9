//! Tools that the provider ran, as items of a response.
//!
//! Their items are maps, not structs: most members are the provider's own and are passed on as they came.

use super::super::wire::SERVER_LABEL;
use super::item::{ItemPhase, item_status};
use model::item::{Block, HostedCall, ItemStatus, plain_text};
use model::json::JsonObject;
use serde_json::Value;

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
        "mcp_list_tools" => vec![("server_label", SERVER_LABEL.into()), ("tools", empty_list())],
        _ => vec![
            ("name", call.name.as_str().into()),
            ("server_label", SERVER_LABEL.into()),
            ("arguments", hosted_arguments(call).into()),
            ("output", hosted_output(call, phase)),
            ("error", Value::Null),
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
        (Some(Value::Object(action)), "web_search_call") if !named(action, &["action", "results"]) => {
            JsonObject::from_iter([("action".to_owned(), Value::Object(action.clone()))])
        }
        (Some(Value::Object(action)), "computer_call")
            if !named(action, &["action", "actions", "pending_safety_checks"]) =>
        {
            JsonObject::from_iter([("action".to_owned(), Value::Object(action.clone()))])
        }
        // Only an MCP call of the provider is logged under the names of the protocol.
        (Some(_), "mcp_call") if call.name != "mcp" => JsonObject::new(),
        (Some(Value::Object(action)), _) => action.clone(),
        (Some(action), _) => JsonObject::from_iter([("action".to_owned(), action.clone())]),
    }
}

/// Maps the status to one that items of this type may have.
fn hosted_status<'a>(call: &'a HostedCall, type_name: &str, phase: ItemPhase) -> &'a str {
    let lacks_incomplete = matches!(type_name, "web_search_call" | "image_generation_call");
    match (item_status(call.status, phase), call.status) {
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
    match &call.action {
        Some(Value::Object(action)) if call.name == "mcp" => {
            action.get("arguments").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        Some(action) => action.to_string(),
        None => "{}".to_owned(),
    }
}

fn hosted_output(call: &HostedCall, phase: ItemPhase) -> Value {
    let blocks = call.block_list.as_deref().unwrap_or_default();
    if phase == ItemPhase::Done && !blocks.is_empty() { plain_text(blocks).into() } else { Value::Null }
}

/// The code that the model has written so far.
pub(super) fn interpreter_code(call: &HostedCall) -> Option<&str> {
    if call.name != "code_interpreter" {
        return None;
    }
    call.action.as_ref()?.get("code")?.as_str()
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
    fn an_image_is_base64_or_a_url() {
        assert_eq!(image_base64_or_url("data:image/png;base64,AAAA"), "AAAA");
        assert_eq!(image_base64_or_url("/v1/blobs/ab12"), "/v1/blobs/ab12");
        assert_eq!(image_base64_or_url("https://example.org/a.png"), "https://example.org/a.png");
    }
}
