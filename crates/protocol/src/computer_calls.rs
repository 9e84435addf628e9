//! Actions on a computer that a tool of the server or the client performs.
//!
//! A provider sends them in one of two shapes: one `action`, or a list of `actions`. The arguments of the call have the shape
//! that came, and every protocol shows that shape.

use model::fold::TaskFold;
use model::item::{Block, COMPUTER_TOOL, CallKind, ToolCall, ToolResult};
use model::json::JsonObject;
use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;

/// How many safety checks a client may acknowledge at once.
pub(crate) const SAFETY_CHECKS_MAX: usize = 64;

/// A computer call in the shape of the Responses protocol. Members are in alphabetical order.
#[skip_serializing_none]
#[derive(Serialize)]
pub(crate) struct ComputerCallItem<'a> {
    action: Option<Value>,
    actions: Option<Value>,
    call_id: &'a str,
    id: &'a str,
    pending_safety_checks: Value,
    status: &'static str,
    #[serde(rename = "type")]
    item_type: &'static str,
}

/// What the screen showed after the actions.
#[derive(Serialize)]
pub(crate) struct ComputerCallOutputItem<'a> {
    pub(crate) acknowledged_safety_checks: Vec<Value>,
    pub(crate) call_id: &'a str,
    pub(crate) id: String,
    pub(crate) output: Screenshot<'a>,
    pub(crate) status: &'static str,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

#[derive(Serialize)]
pub(crate) struct Screenshot<'a> {
    image_url: &'a str,
    #[serde(rename = "type")]
    output_type: &'static str,
}

impl<'a> Screenshot<'a> {
    pub(crate) const fn new(image_url: &'a str) -> Self {
        Self { image_url, output_type: "computer_screenshot" }
    }
}

/// Whether the client is to perform the actions. A function of that name that the client has declared is called like any
/// other.
pub(crate) fn is_client_computer_call(task: &TaskFold, call: &ToolCall) -> bool {
    let mut declared = task.client_tools.iter().chain(&task.retired_client_tools);
    call.kind == Some(CallKind::Client) && call.name == COMPUTER_TOOL && !declared.any(|tool| tool.name == call.name)
}

/// The arguments of a computer call that a client sends back as an item.
pub(crate) fn computer_arguments(item: &Value) -> String {
    let fields = ["action", "actions", "pending_safety_checks"];
    let fields = fields.into_iter().filter_map(|name| {
        let value = item.get(name).filter(|value| !value.is_null())?;
        Some((name.to_owned(), value.clone()))
    });
    Value::Object(fields.collect::<JsonObject>()).to_string()
}

/// A computer call as an item; `None` if the arguments are those of another tool of that name.
pub(crate) fn computer_call_item(call: &ToolCall) -> Option<ComputerCallItem<'_>> {
    if call.name != COMPUTER_TOOL {
        return None;
    }
    let mut arguments: Value = serde_json::from_str(call.arguments.as_deref()?).ok()?;
    let mut take = |name: &str| arguments.get_mut(name).map(Value::take);
    let (action, actions) = (take("action").filter(|action| !action.is_null()), take("actions"));
    let actions = actions.filter(Value::is_array);
    if action.is_none() && actions.is_none() {
        return None;
    }
    Some(ComputerCallItem {
        action,
        actions,
        call_id: call.call_id.as_str(),
        id: call.id.as_str(),
        pending_safety_checks: take("pending_safety_checks").unwrap_or_else(|| Value::Array(Vec::new())),
        status: "completed",
        item_type: "computer_call",
    })
}

/// The last image of a result.
pub(crate) fn screenshot_url(result: &ToolResult) -> Option<&str> {
    result.block_list.iter().flatten().rev().find_map(|block| match block {
        Block::Image(image) => Some(image.image_url.url.as_str()),
        _ => None,
    })
}
