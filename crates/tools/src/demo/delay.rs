//! `tool_a`, `tool_b`, `tool_c`: each waits for a fixed time, to show parallel calls.

use crate::arguments::parse_arguments;
use crate::new_builtin::new_builtin;
use crate::output::{invalid_arguments_output, text_output};
use model::definition::Tool;
use model::tool::ToolOutput;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

pub(super) const TOOL_A: &str = "tool_a";
pub(super) const TOOL_B: &str = "tool_b";
pub(super) const TOOL_C: &str = "tool_c";

struct DelayTool {
    delay_ms: u64,
    display_name: &'static str,
    result: &'static str,
}

const fn delay_tool(name: &str) -> Option<DelayTool> {
    match name.as_bytes() {
        b"tool_a" => Some(DelayTool { delay_ms: 100, display_name: "Tool A", result: "a done" }),
        b"tool_b" => Some(DelayTool { delay_ms: 300, display_name: "Tool B", result: "b done" }),
        b"tool_c" => Some(DelayTool { delay_ms: 600, display_name: "Tool C", result: "c done" }),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {}

pub(super) fn definition(name: &str) -> Option<Tool> {
    let DelayTool { delay_ms, display_name, .. } = delay_tool(name)?;
    let parameters = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    Some(new_builtin(name, display_name, &format!("Waits {delay_ms} ms."), parameters))
}

pub(super) async fn run(name: &str, arguments: &str) -> Option<ToolOutput> {
    let DelayTool { delay_ms, result, .. } = delay_tool(name)?;
    if let Err(error) = parse_arguments::<Arguments>(arguments) {
        return Some(invalid_arguments_output(error));
    }
    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
    Some(text_output(result))
}
