//! Searches of tools, in the shape of the Responses protocol: those that this server answers, and those of providers.

use model::item::{CallKind, HostedCall, ResultStatus, ToolCall, ToolResult};
use model::json::JsonObject;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) const SEARCH_CALL_TYPE: &str = "tool_search_call";
pub(crate) const SEARCH_OUTPUT_TYPE: &str = "tool_search_output";
/// The search of a provider that has an item for the tools that it found.
const HOSTED_SEARCH: &str = "tool_search";
/// How the names of a provider's searches begin that have their result in the same item.
const SEARCH_WITH_RESULT_PREFIX: &str = "tool_search_tool_";

/// A search. Members are in alphabetical order.
#[derive(Serialize)]
pub(crate) struct ToolSearchCallItem<'a> {
    arguments: Value,
    call_id: &'a str,
    execution: &'static str,
    id: String,
    status: &'static str,
    #[serde(rename = "type")]
    item_type: &'static str,
}

/// The tools that a search found.
#[derive(Serialize)]
pub(crate) struct ToolSearchOutputItem<'a> {
    call_id: Option<&'a str>,
    execution: &'static str,
    id: String,
    status: &'static str,
    tools: Vec<Value>,
    #[serde(rename = "type")]
    item_type: &'static str,
}

impl ToolSearchCallItem<'_> {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The item before its turn is complete.
    pub(crate) fn in_progress(self) -> Self {
        Self { status: "in_progress", ..self }
    }
}

impl ToolSearchOutputItem<'_> {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The item before the tools are known.
    pub(crate) fn in_progress(self) -> Self {
        Self { status: "in_progress", tools: Vec::new(), ..self }
    }
}

/// Whether the call searches tools of this server.
pub(crate) fn is_tool_search(call: &ToolCall) -> bool {
    call.kind == Some(CallKind::ToolSearch)
}

/// How the Responses protocol calls a search of a provider, or its result; `None` for other tools.
pub(crate) fn hosted_search_type(name: &str) -> Option<&'static str> {
    match name {
        HOSTED_SEARCH => Some(SEARCH_CALL_TYPE),
        SEARCH_OUTPUT_TYPE => Some(SEARCH_OUTPUT_TYPE),
        _ if name.starts_with(SEARCH_WITH_RESULT_PREFIX) => Some(SEARCH_CALL_TYPE),
        _ => None,
    }
}

pub(crate) fn search_call_item(call: &ToolCall) -> ToolSearchCallItem<'_> {
    let arguments = call.arguments.as_deref().unwrap_or_default();
    ToolSearchCallItem {
        arguments: serde_json::from_str(arguments).unwrap_or_else(|_| json!({ "query": arguments })),
        call_id: call.call_id.as_str(),
        execution: "server",
        id: call.call_id.item_id("tsc").to_string(),
        status: "completed",
        item_type: SEARCH_CALL_TYPE,
    }
}

pub(crate) fn search_output_item(result: &ToolResult) -> ToolSearchOutputItem<'_> {
    let is_complete = matches!(result.status, None | Some(ResultStatus::Completed));
    let found = result.artifact.as_ref().and_then(|artifact| artifact.get("tools")).and_then(Value::as_array);
    ToolSearchOutputItem {
        call_id: Some(result.call_id.as_str()),
        execution: "server",
        id: result.call_id.item_id("tso").to_string(),
        status: if is_complete { "completed" } else { "incomplete" },
        tools: group_tools(found.map_or(&[][..], Vec::as_slice)),
        item_type: SEARCH_OUTPUT_TYPE,
    }
}

/// The tools that a provider's search found, if the call has them itself.
pub(crate) fn hosted_search_output(call: &HostedCall) -> Option<ToolSearchOutputItem<'static>> {
    if !call.name.starts_with(SEARCH_WITH_RESULT_PREFIX) {
        return None;
    }
    let references = call.output().and_then(|output| output.get("tool_references")).and_then(Value::as_array);
    let name = |reference: &Value| Some(json!({ "name": reference.get("tool_name")?.as_str()? }));
    let found: Vec<Value> = references.into_iter().flatten().filter_map(name).collect();
    Some(ToolSearchOutputItem {
        call_id: None,
        execution: "server",
        id: call.id.as_str().replacen("hc_", "tso_", 1),
        status: if call.has_failed() { "incomplete" } else { "completed" },
        tools: group_tools(&found),
        item_type: SEARCH_OUTPUT_TYPE,
    })
}

/// Functions, and namespaces with theirs, each where its first tool was found.
fn group_tools(found: &[Value]) -> Vec<Value> {
    let mut tools: Vec<Value> = Vec::new();
    let mut namespaces: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in found {
        let function = function_tool(tool);
        let Some(namespace) = tool.get("namespace").and_then(Value::as_str) else {
            tools.push(function);
            continue;
        };
        let index = *namespaces.entry(namespace).or_insert_with(|| {
            let description = format!("Tools of {namespace}.");
            tools.push(json!({
                "type": "namespace", "name": namespace, "description": description, "tools": [],
            }));
            tools.len() - 1
        });
        if let Some(list) = tools.get_mut(index).and_then(|group| group.get_mut("tools")).and_then(Value::as_array_mut)
        {
            list.push(function);
        }
    }
    tools
}

fn function_tool(tool: &Value) -> Value {
    let field = |name: &str| tool.get(name).cloned().unwrap_or(Value::Null);
    let mut function = JsonObject::new();
    function.insert("type".to_owned(), "function".into());
    for name in ["name", "description", "parameters"] {
        function.insert(name.to_owned(), field(name));
    }
    function.insert("strict".to_owned(), false.into());
    function.insert("defer_loading".to_owned(), true.into());
    function.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_a_namespace_are_together_where_the_first_was_found() {
        let found = [
            json!({"name": "b", "namespace": "g"}),
            json!({"name": "plain"}),
            json!({"name": "a", "namespace": "g", "parameters": {"type": "object"}}),
        ];
        let grouped = group_tools(&found);
        assert_eq!((grouped.len(), &grouped[0]["name"], &grouped[1]["name"]), (2, &json!("g"), &json!("plain")));
        assert_eq!(grouped[0]["tools"][1]["parameters"], json!({"type": "object"}));
        assert_eq!(grouped[0]["tools"][0]["parameters"], Value::Null);
        assert_eq!(group_tools(&[]), Vec::<Value>::new());
    }

    #[test]
    fn arguments_that_are_no_json_are_the_query() {
        let call = json!({"id": "fc_R1", "call_id": "call_R1", "name": "tool_search", "arguments": "{\"q"});
        let call: ToolCall = serde_json::from_value(call).unwrap();
        assert_eq!(search_call_item(&call).arguments, json!({"query": "{\"q"}));
    }
}
