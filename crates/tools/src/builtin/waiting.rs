//! `tool_a`, `tool_b`, `tool_c`: each waits a while and says so, to be run side by side. The demo's tools.

use super::{invalid_arguments, read, said};
use model::definition::{Tool, ToolExecutor};
use model::tool::{ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

pub(super) const TOOL_A: &str = "tool_a";
pub(super) const TOOL_B: &str = "tool_b";
pub(super) const TOOL_C: &str = "tool_c";

/// What is different about one of them.
struct Wait {
    ms: u64,
    display_name: &'static str,
    end: &'static str,
}

const fn wait(name: &str) -> Option<Wait> {
    match name.as_bytes() {
        b"tool_a" => Some(Wait { ms: 100, display_name: "Tool A", end: "a done" }),
        b"tool_b" => Some(Wait { ms: 300, display_name: "Tool B", end: "b done" }),
        b"tool_c" => Some(Wait { ms: 600, display_name: "Tool C", end: "c done" }),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {}

pub(super) fn definition(name: &str) -> Option<Tool> {
    let Wait { ms, display_name, .. } = wait(name)?;
    let spec = ToolSpec {
        name: name.to_owned(),
        description: format!("Waits {ms} ms."),
        parameters: json!({ "type": "object", "properties": {}, "additionalProperties": false }),
    };
    Some(Tool {
        display_name: Some(display_name.to_owned()),
        idempotent: true,
        ..Tool::new(spec, ToolExecutor::Builtin)
    })
}

pub(super) async fn run(name: &str, arguments: &str) -> Option<ToolOutput> {
    let Wait { ms, end, .. } = wait(name)?;
    if let Err(error) = read::<Arguments>(arguments) {
        return Some(invalid_arguments(error));
    }
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Some(said(end))
}
