//! The input and the outcome of a hosted call. `action` has the provider's shape, in which they have many names.

use super::HostedCall;
use crate::json::{JsonObject, parse_lenient_json};
use serde_json::Value;

/// What a tool returned.
const OUTPUT_FIELDS: [&str; 6] = ["output", "outputs", "results", "result", "tools", "sources"];
/// Neither what a tool was given nor what it returned.
const DESCRIPTION_FIELDS: [&str; 5] = ["error", "server_label", "server_name", "container_id", "approval_request_id"];
/// The state of a call whose tool reported an error.
const FAILED_STATE: &str = "failed";

impl HostedCall {
    /// The name of the tool: on an MCP server its own, else the provider's.
    pub fn tool_name(&self) -> &str {
        let own = self.action_field("name").and_then(Value::as_str).filter(|_| self.is_mcp());
        own.unwrap_or(&self.name)
    }

    /// The MCP server that has the tool.
    pub fn server_label(&self) -> Option<&str> {
        self.action_field("server_label").or_else(|| self.action_field("server_name"))?.as_str()
    }

    /// What the tool was given. Text that is not JSON, such as arguments of which the end is missing, is a string.
    pub fn arguments(&self) -> Value {
        let Some(Value::Object(action)) = &self.action else {
            return self.action.clone().unwrap_or_else(|| JsonObject::new().into());
        };
        if let Some(arguments) = self.action_field("arguments").filter(|_| self.is_mcp()) {
            let parsed = arguments.as_str().and_then(|text| parse_lenient_json(text).ok());
            return parsed.unwrap_or_else(|| arguments.clone());
        }
        if let Some(input) = self.action_field("input") {
            return input.clone();
        }
        let is_input = |name: &str| !OUTPUT_FIELDS.contains(&name) && !DESCRIPTION_FIELDS.contains(&name);
        let is_input = |name: &str| is_input(name) && !(self.is_mcp() && name == "name");
        let fields = action.iter().filter(|(name, _)| is_input(name));
        let mut input: JsonObject = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        match (input.len(), input.remove("action")) {
            (1, Some(only)) => only,
            (_, Some(action)) => {
                input.insert("action".to_owned(), action);
                input.into()
            }
            (_, None) => input.into(),
        }
    }

    /// What the tool returned, besides the text and the images of `block_list`.
    pub fn output(&self) -> Option<&Value> {
        OUTPUT_FIELDS.iter().find_map(|name| self.action_field(name))
    }

    /// The provider's description of the tool's error.
    pub fn error(&self) -> Option<&Value> {
        let result = || self.action_field("result").filter(|_| self.has_failed());
        self.action_field("error").or_else(result)
    }

    /// Whether the tool reported an error, or the provider reported one instead of a result.
    pub fn has_failed(&self) -> bool {
        self.state.as_deref() == Some(FAILED_STATE)
    }

    fn is_mcp(&self) -> bool {
        self.name == "mcp"
    }

    fn action_field(&self, name: &str) -> Option<&Value> {
        self.action.as_ref()?.get(name).filter(|value| !value.is_null())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(name: &str, state: &str, action: Value) -> HostedCall {
        let (id, name, state) = ("hc_R1".into(), name.to_owned(), Some(state.to_owned()));
        let action = Some(action).filter(|action| !action.is_null());
        HostedCall { id, name, state, action, block_list: None, status: None, reason: None, agent: None }
    }

    #[test]
    fn an_mcp_call_has_the_servers_names() {
        let action = json!({"name": "ask", "server_label": "wiki", "arguments": "{\"q\":1}", "error": "no page"});
        let ask = call("mcp", "failed", action);
        assert_eq!((ask.tool_name(), ask.server_label()), ("ask", Some("wiki")));
        assert_eq!((ask.arguments(), ask.output()), (json!({"q": 1}), None));
        assert_eq!((ask.error(), ask.has_failed()), (Some(&json!("no page")), true));
        let begun = call("mcp", "in_progress", json!({"name": "ask", "server_label": "wiki"}));
        assert_eq!(begun.arguments(), json!({}));
        assert_eq!(call("mcp", "in_progress", json!({"arguments": "{\"q\""})).arguments(), json!("{\"q\""));
    }

    #[test]
    fn input_and_output_are_told_apart_in_every_shape() {
        let logs = json!([{"type": "logs", "logs": "2"}]);
        let code = call("code_interpreter", "completed", json!({"code": "1+1", "container_id": "c", "outputs": logs}));
        assert_eq!((code.arguments(), code.output()), (json!({"code": "1+1"}), Some(&logs)));
        let search = call("web_search", "completed", json!({"type": "search", "query": "x", "sources": ["s"]}));
        assert_eq!(search.arguments(), json!({"type": "search", "query": "x"}));
        assert_eq!(search.output(), Some(&json!(["s"])));
        let found = call("web_search", "completed", json!({"action": {"query": "x"}, "results": [1]}));
        assert_eq!((found.arguments(), found.output()), (json!({"query": "x"}), Some(&json!([1]))));
        let fetched = json!({"input": {"url": "https://example.org"}, "result": {"type": "web_fetch_result"}});
        let fetched = call("web_fetch", "completed", fetched);
        assert_eq!(fetched.arguments(), json!({"url": "https://example.org"}));
        assert_eq!((fetched.output(), fetched.error()), (Some(&json!({"type": "web_fetch_result"})), None));
        let refused = json!({"type": "web_search_tool_result_error", "error_code": "unavailable"});
        let refused_call = call("web_search", "failed", json!({"input": {"query": "x"}, "result": refused}));
        assert_eq!(refused_call.error(), Some(&refused));
        assert_eq!(call("shell", "completed", Value::Null).arguments(), json!({}));
    }
}
