//! A tool that the provider ran, for protocols in which a call has arguments and a result.

use model::item::{HostedCall, ItemStatus, plain_text};
use model::json::{ExactObject, to_exact_object};
use serde_json::Value;

/// The member that holds arguments that are not an object.
const RAW_ARGUMENTS_KEY: &str = "_raw";
/// Tools whose input is logged while the model writes it.
const STREAMED_INPUTS: [&str; 3] = ["code_interpreter", "apply_patch", "shell"];
/// The members of an output that are text for people.
const TEXT_FIELDS: [&str; 4] = ["text", "logs", "stdout", "stderr"];
/// The members that name an element of a list, such as a search result or a tool.
const NAME_FIELDS: [&str; 4] = ["title", "name", "filename", "url"];
/// The members of an error that explain it, the best first.
const ERROR_FIELDS: [&str; 5] = ["message", "content", "error", "error_code", "code"];

/// Arguments that are not an object, as one.
pub(crate) fn raw_object(arguments: impl Into<Value>) -> ExactObject {
    ExactObject::from([(RAW_ARGUMENTS_KEY.to_owned(), arguments.into().into())])
}

pub(crate) fn hosted_arguments(call: &HostedCall) -> ExactObject {
    match call.arguments() {
        Value::Object(arguments) => to_exact_object(arguments),
        other => raw_object(other),
    }
}

/// Whether the arguments are there and do not grow any more.
pub(crate) fn has_complete_arguments(call: &HostedCall) -> bool {
    let is_running = call.state.as_deref().is_some_and(|state| state != "in_progress");
    match call.arguments() {
        Value::Object(arguments) if arguments.is_empty() => false,
        // Arguments of an MCP call that are still being written are not JSON.
        Value::String(_) => is_running,
        _ => is_running || !STREAMED_INPUTS.contains(&call.name.as_str()),
    }
}

/// Whether a call that has ended did what it was asked for.
pub(crate) fn hosted_call_succeeded(call: &HostedCall) -> bool {
    let has_ended_well = matches!(call.status, None | Some(ItemStatus::Completed));
    has_ended_well && !call.has_failed() && call.state.as_deref() != Some("incomplete") && call.error().is_none()
}

/// The output as text: blocks, then what the provider logged beside them. Of a failed call without any, the error.
pub(crate) fn hosted_output_text(call: &HostedCall) -> String {
    let blocks = plain_text(call.block_list.as_deref().unwrap_or_default());
    let error = hosted_error_text(call);
    let output = call.output().filter(|output| Some(*output) != call.error()).map(output_text);
    let texts = [Some(blocks), output, error].into_iter().flatten().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

/// The provider's explanation of a failure, if it gave one.
pub(crate) fn hosted_error_text(call: &HostedCall) -> Option<String> {
    call.error().map(error_text).filter(|text| !text.is_empty())
}

fn output_text(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        // Images are blocks of the call.
        Value::Array(list) => join_lines(list.iter().filter(|element| element["type"] != "image").map(element_text)),
        other => element_text(other),
    }
}

fn element_text(element: &Value) -> String {
    let strings = |names: &[&str]| {
        let values = names.iter().filter_map(|name| element.get(name)?.as_str()).filter(|text| !text.is_empty());
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    match element {
        Value::String(text) => text.clone(),
        Value::Object(_) => {
            let (name, text) = (strings(&NAME_FIELDS).join(" "), strings(&TEXT_FIELDS).join("\n"));
            let lines = join_lines([name, text].into_iter());
            if lines.is_empty() { element.to_string() } else { lines }
        }
        other => other.to_string(),
    }
}

fn error_text(error: &Value) -> String {
    match error {
        Value::Array(_) => output_text(error),
        Value::Object(fields) => {
            let explanation = ERROR_FIELDS.iter().find_map(|name| fields.get(*name).filter(|field| !field.is_null()));
            explanation.map_or_else(|| error.to_string(), error_text)
        }
        other => element_text(other),
    }
}

fn join_lines(texts: impl Iterator<Item = String>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(name: &str, state: &str, action: &Value) -> HostedCall {
        let value = json!({"id": "hc_R1", "name": name, "state": state, "action": action, "status": "completed"});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn arguments_are_complete_when_they_do_not_grow_any_more() {
        for (name, state, action, expected) in [
            ("code_interpreter", "in_progress", json!({"container_id": "c"}), false),
            ("code_interpreter", "in_progress", json!({"container_id": "c", "code": "pri"}), false),
            ("code_interpreter", "interpreting", json!({"container_id": "c", "code": "print(1)"}), true),
            ("mcp", "in_progress", json!({"name": "ask", "server_label": "wiki"}), false),
            ("mcp", "in_progress", json!({"name": "ask", "arguments": "{\"q\":"}), false),
            ("mcp", "in_progress", json!({"name": "ask", "arguments": "{\"q\":1}"}), true),
            ("web_search", "searching", json!({"type": "search", "query": "x"}), true),
            ("web_search", "in_progress", json!({"input": {"query": "x"}}), true),
        ] {
            assert_eq!(has_complete_arguments(&call(name, state, &action)), expected, "{name} {state} {action}");
        }
    }

    #[test]
    fn outputs_of_every_shape_are_text() {
        let logs =
            json!([{"type": "logs", "logs": "1\n"}, {"type": "image", "url": "u"}, {"type": "logs", "logs": "2"}]);
        let found = json!([{"type": "web_search_result", "title": "Seine", "url": "https://example.org/seine"}]);
        for (name, action, expected) in [
            ("code_interpreter", json!({"code": "x", "outputs": logs}), "1\n\n2"),
            ("mcp", json!({"name": "ask", "arguments": "{}", "output": "four"}), "four"),
            ("ask", json!({"input": {}, "result": [{"type": "text", "text": "four"}]}), "four"),
            ("web_search", json!({"input": {"query": "x"}, "result": found}), "Seine https://example.org/seine"),
            ("file_search", json!({"queries": ["x"], "results": [{"filename": "a.md", "text": "x"}]}), "a.md\nx"),
            ("code_execution", json!({"input": {}, "result": {"stdout": "2", "stderr": "", "return_code": 0}}), "2"),
            ("web_fetch", json!({"input": {}, "result": {"n": 1}}), r#"{"n":1}"#),
        ] {
            let call = call(name, "completed", &action);
            assert_eq!(hosted_output_text(&call), expected, "{name}");
            assert!(hosted_call_succeeded(&call), "{name}");
        }
    }

    #[test]
    fn a_failed_call_has_the_text_of_its_error() {
        let refused = json!({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"});
        let broken = json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no page"}]});
        for (name, action, expected) in [
            ("mcp", json!({"name": "ask", "arguments": "{}", "error": "no page"}), "no page"),
            ("mcp", json!({"name": "ask", "arguments": "{}", "error": broken}), "no page"),
            ("mcp", json!({"name": "ask", "error": {"type": "http_error", "code": 404, "message": "gone"}}), "gone"),
            ("web_search", json!({"input": {"query": "x"}, "result": refused}), "max_uses_exceeded"),
            ("code_interpreter", json!({"code": "1/0"}), ""),
        ] {
            let call = call(name, "failed", &action);
            assert_eq!(hosted_output_text(&call), expected, "{name}");
            assert!(!hosted_call_succeeded(&call), "{name}");
        }
    }
}
