//! Tools that the provider ran itself, in the shape in which the wire has them.

use super::item::item_status;
use crate::responses::SERVER_LABEL;
use model::item::{Block, plain_text};
use model::item::{HostedCall, ItemStatus};
use model::json::JsonObject;
use serde_json::{Value, json};

/// How the wire has a hosted tool.
#[derive(Debug)]
pub(super) struct HostedItemType {
    /// The item's type.
    pub(super) type_name: &'static str,
    /// The states that have an event.
    pub(super) states: &'static [&'static str],
}

const SEARCHES: &[&str] = &["in_progress", "searching", "completed"];
const ENDS: &[&str] = &["in_progress", "completed", "failed"];

/// The shape of the tool of this name. What the wire has no type for is a call of somebody's server.
pub(super) fn hosted_item_type(name: &str) -> HostedItemType {
    let (wire, states) = match name {
        "web_search" => ("web_search_call", SEARCHES),
        "file_search" => ("file_search_call", SEARCHES),
        "code_interpreter" => ("code_interpreter_call", &["in_progress", "interpreting", "completed"] as &[_]),
        "image_generation" => ("image_generation_call", &["in_progress", "generating", "completed"] as &[_]),
        "computer" => ("computer_call", &[] as &[_]),
        "mcp_list_tools" => ("mcp_list_tools", ENDS),
        _ => ("mcp_call", ENDS),
    };
    HostedItemType { type_name: wire, states }
}

/// The item.
pub(super) fn hosted_item(call: &HostedCall, closed: bool) -> Value {
    let wire = hosted_item_type(&call.name).type_name;
    let mut item = action_fields(call, wire);
    let mut put = |key: &str, value: Value| item.insert(key.to_owned(), value);
    put("id", json!(call.id));
    put("type", wire.into());
    put("status", hosted_status(call, wire, closed).into());
    let mut default = |key: &str, value: Value| {
        item.entry(key).or_insert(value);
    };
    match wire {
        "web_search_call" => {
            let action = item.entry("action").or_insert_with(|| json!({"query": ""}));
            if let Some(action) = action.as_object_mut() {
                action.entry("type").or_insert_with(|| "search".into());
            }
        }
        "file_search_call" => {
            default("queries", json!([]));
            default("results", Value::Null);
        }
        "code_interpreter_call" => {
            default("container_id", "".into());
            default("code", Value::Null);
            default("outputs", interpreter_outputs(call));
        }
        "image_generation_call" => default("result", generated_image(call).map_or(Value::Null, Value::from)),
        "computer_call" => {
            default("call_id", json!(call.id));
            default("pending_safety_checks", json!([]));
        }
        "mcp_list_tools" => {
            default("server_label", SERVER_LABEL.into());
            default("tools", json!([]));
        }
        _ => {
            default("name", call.name.as_str().into());
            default("server_label", SERVER_LABEL.into());
            default("arguments", hosted_arguments(call).into());
            default("output", hosted_output(call, closed));
            default("error", Value::Null);
            default("approval_request_id", Value::Null);
        }
    }
    Value::Object(item)
}

/// What the provider says of the call, under the names that the wire has for it. What was said under one name alone is
/// logged without that name.
fn action_fields(call: &HostedCall, wire: &str) -> JsonObject {
    let named = |action: &JsonObject, keys: &[&str]| keys.iter().any(|key| action.contains_key(*key));
    match (&call.action, wire) {
        (None, _) => JsonObject::new(),
        (Some(Value::Object(action)), "web_search_call") if !named(action, &["action", "results"]) => {
            JsonObject::from_iter([("action".to_owned(), Value::Object(action.clone()))])
        }
        (Some(Value::Object(action)), "computer_call")
            if !named(action, &["action", "actions", "pending_safety_checks"]) =>
        {
            JsonObject::from_iter([("action".to_owned(), Value::Object(action.clone()))])
        }
        // Only a server's own call has its parts named as the wire names them.
        (Some(_), "mcp_call") if call.name != "mcp" => JsonObject::new(),
        (Some(Value::Object(action)), _) => action.clone(),
        (Some(action), _) => JsonObject::from_iter([("action".to_owned(), action.clone())]),
    }
}

/// How far it is, in a word that this type has.
fn hosted_status<'a>(call: &'a HostedCall, wire: &str, closed: bool) -> &'a str {
    let lacks_incomplete = matches!(wire, "web_search_call" | "image_generation_call");
    match (item_status(call.status, closed), call.status) {
        (_, Some(ItemStatus::Failed)) => "failed",
        ("incomplete", _) if lacks_incomplete => "failed",
        ("in_progress", _) => match call.state.as_deref() {
            Some(state @ ("searching" | "generating" | "interpreting")) => state,
            _ => "in_progress",
        },
        (word, _) => word,
    }
}

/// What a call of somebody's server was given, as text.
pub(super) fn hosted_arguments(call: &HostedCall) -> String {
    match &call.action {
        Some(Value::Object(action)) if call.name == "mcp" => {
            action.get("arguments").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        Some(action) => action.to_string(),
        None => "{}".to_owned(),
    }
}

fn hosted_output(call: &HostedCall, closed: bool) -> Value {
    let blocks = call.block_list.as_deref().unwrap_or_default();
    if closed && !blocks.is_empty() { plain_text(blocks).into() } else { Value::Null }
}

/// The code that was written so far.
pub(super) fn interpreter_code(call: &HostedCall) -> Option<&str> {
    if call.name != "code_interpreter" {
        return None;
    }
    call.action.as_ref()?.get("code")?.as_str()
}

fn interpreter_outputs(call: &HostedCall) -> Value {
    let pictures: Vec<Value> = image_urls(call).map(|url| json!({"type": "image", "url": url})).collect();
    if pictures.is_empty() { Value::Null } else { Value::Array(pictures) }
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

/// The picture itself where the address holds it; else the address.
pub(super) fn image_base64_or_url(url: &str) -> &str {
    let data = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    data.map_or(url, |(_, picture)| picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, action: Value) -> HostedCall {
        let (id, name, action) = ("hc_R1".into(), name.to_owned(), Some(action).filter(|action| !action.is_null()));
        HostedCall { id, name, action, block_list: None, state: None, status: None, reason: None, agent: None }
    }

    #[test]
    fn what_was_logged_without_its_name_gets_it_back() {
        let search = hosted_item(&call("web_search", json!({"query": "x"})), true);
        assert_eq!(search["action"], json!({"type": "search", "query": "x"}));
        let page = json!({"type": "open_page", "url": "https://example.org"});
        assert_eq!(hosted_item(&call("web_search", page.clone()), true)["action"], page);
        let click = json!({"type": "click", "x": 1});
        assert_eq!(hosted_item(&call("computer", click.clone()), true)["action"], click);
        let many = hosted_item(&call("computer", json!({ "actions": [click] })), true);
        assert_eq!((&many["actions"], many.get("action")), (&json!([click]), None));
        let files = hosted_item(&call("file_search", json!({"queries": ["x"]})), true);
        assert_eq!((&files["queries"], &files["results"]), (&json!(["x"]), &Value::Null));
    }

    #[test]
    fn what_the_wire_has_no_type_for_is_a_call_of_a_server() {
        let shell = hosted_item(&call("shell", json!({"commands": ["ls"]})), true);
        assert_eq!((&shell["type"], &shell["name"]), (&json!("mcp_call"), &json!("shell")));
        assert_eq!(shell["arguments"], r#"{"commands":["ls"]}"#);
        let theirs = json!({"name": "roll", "server_label": "dice", "arguments": "{}", "output": "4"});
        let theirs = hosted_item(&call("mcp", theirs), true);
        assert_eq!((&theirs["server_label"], &theirs["output"]), (&json!("dice"), &json!("4")));
    }

    #[test]
    fn a_picture_is_given_as_base64_or_by_its_address() {
        assert_eq!(image_base64_or_url("data:image/png;base64,AAAA"), "AAAA");
        assert_eq!(image_base64_or_url("/v1/blobs/ab12"), "/v1/blobs/ab12");
        assert_eq!(image_base64_or_url("https://example.org/a.png"), "https://example.org/a.png");
    }
}
