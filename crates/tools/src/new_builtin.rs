//! The definition of a tool that comes with the server.

use model::definition::{Tool, ToolExecutor, ToolSpec};
use serde_json::Value;

/// A builtin without side effects; the definitions of other tools change what differs.
pub(crate) fn new_builtin(name: &str, display_name: &str, description: &str, parameters: Value) -> Tool {
    let spec = ToolSpec { name: name.to_owned(), description: description.to_owned(), parameters };
    Tool { display_name: Some(display_name.to_owned()), idempotent: true, ..Tool::new(spec, ToolExecutor::Builtin) }
}
