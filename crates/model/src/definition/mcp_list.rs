//! The lists of MCP servers' tools, as clients are shown them.

use super::{Definitions, McpTool, Tool, ToolExecutor};
use crate::limits::RECORD_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// One record holds a list, beside whatever else the record has.
const LIST_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;

/// What a server answered when a run was about to start. Its tools are those of the definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpList {
    /// The agents that have the server in their `tools`.
    pub agents: BTreeSet<String>,
    /// Why the server, or a tool of it, is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The digest of what clients are shown ([`mcp_list_digest`]); `None` if the server did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// How much of each tool a list shows.
#[derive(Clone, Copy)]
enum ListDetail {
    All,
    NoSchema,
    Name,
}

impl Definitions {
    /// The `action` of the item that shows the tools of a server. What one record cannot hold is left out: at first the
    /// schemas, then the descriptions.
    #[must_use]
    pub fn mcp_list_action(&self, label: &str) -> Value {
        let details = [ListDetail::All, ListDetail::NoSchema, ListDetail::Name];
        let mut lists = details.into_iter().map(|detail| self.list_action(label, detail));
        lists.find(|list| list.to_string().len() <= LIST_BYTES_MAX).unwrap_or_else(|| {
            let error = format!("The list of tools has more than {LIST_BYTES_MAX} bytes.");
            json!({"server_label": label, "tools": [], "error": error})
        })
    }

    fn list_action(&self, label: &str, detail: ListDetail) -> Value {
        let tools = self.tools.values().filter_map(|tool| match &tool.executor {
            ToolExecutor::Mcp(of_server) if of_server.server == label => Some(describe_tool(tool, of_server, detail)),
            _ => None,
        });
        let mut action = json!({"server_label": label, "tools": tools.collect::<Vec<Value>>()});
        if let (Some(error), Some(action)) =
            (self.mcp_lists.get(label).and_then(|list| list.error.as_ref()), action.as_object_mut())
        {
            action.insert("error".to_owned(), error.as_str().into());
        }
        action
    }
}

fn describe_tool(tool: &Tool, of_server: &McpTool, detail: ListDetail) -> Value {
    // Clients require a schema.
    let schema = match detail {
        ListDetail::All => tool.spec.parameters.clone(),
        ListDetail::NoSchema | ListDetail::Name => json!({"type": "object"}),
    };
    let mut described = json!({"name": of_server.tool, "input_schema": schema});
    if let (ListDetail::All | ListDetail::NoSchema, Some(described)) = (detail, described.as_object_mut()) {
        described.insert("description".to_owned(), tool.spec.description.as_str().into());
    }
    described
}

/// Equal for lists that clients cannot tell apart.
#[must_use]
pub fn mcp_list_digest(action: &Value) -> String {
    Sha256::digest(action.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{CommandTool, McpProgram, McpScope, McpTarget, McpTransport, ToolSpec};
    use std::sync::Arc;

    fn definitions(tools: usize, schema_bytes: usize) -> Definitions {
        let program = McpProgram {
            transport: McpTransport::Command(CommandTool::default()),
            scope: McpScope::User,
            start_timeout_ms: 1,
        };
        let program = Arc::new(program);
        let tool = |number: usize| {
            let of_server = McpTool {
                server: if number == 0 { "other" } else { "files" }.to_owned(),
                tool: format!("t{number}"),
                spec_digest: String::new(),
                program: Arc::clone(&program),
                target: McpTarget::Tool,
                is_changed: false,
                has_user_credential: false,
            };
            let parameters = json!({"type": "object", "description": "x".repeat(schema_bytes)});
            let spec = ToolSpec { name: format!("n{number}"), description: "Reads.".to_owned(), parameters };
            (format!("n{number}"), Tool::new(spec, ToolExecutor::Mcp(of_server)))
        };
        Definitions { tools: (0..=tools).map(tool).collect(), ..Definitions::default() }
    }

    #[test]
    fn a_list_has_the_tools_of_its_server_by_their_own_names() {
        let mut definitions = definitions(1, 1);
        let tool =
            json!({"name": "t1", "description": "Reads.", "input_schema": {"type": "object", "description": "x"}});
        assert_eq!(definitions.mcp_list_action("files"), json!({"server_label": "files", "tools": [tool]}));
        let list = McpList { error: Some("Gone.".to_owned()), ..McpList::default() };
        definitions.mcp_lists.insert("wiki".to_owned(), list);
        assert_eq!(definitions.mcp_list_action("wiki"), json!({"server_label": "wiki", "tools": [], "error": "Gone."}));
    }

    #[test]
    fn what_one_record_cannot_hold_is_left_out() {
        let shown = |tools, bytes| definitions(tools, bytes).mcp_list_action("files");
        let large = shown(3, LIST_BYTES_MAX / 2);
        assert_eq!(large["tools"].as_array().map(Vec::len), Some(3));
        assert_eq!(large["tools"][0]["input_schema"], json!({"type": "object"}));
        assert_eq!(large["tools"][0]["description"], "Reads.");
        assert_eq!(shown(2000, 1)["tools"][0].get("description"), None);
        assert!(shown(20_000, 1)["error"].as_str().is_some_and(|error| error.contains("more than")));
    }
}
