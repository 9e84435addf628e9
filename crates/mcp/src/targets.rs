//! Resources and prompts of a server, as tools: the requests that their calls are, and what comes back.

use crate::content::{bounded_output, link_json, read_block, read_resource};
use crate::link::FailureSlot;
use model::content::ContentPart;
use model::definition::{McpServer, McpTarget, ToolSpec, mcp_tool_name};
use model::error::{ErrorCode, ErrorInfo};
use model::json::JsonObject;
use model::tool::ToolOutput;
use rmcp::model::{
    ClientRequest, GetPromptRequest, GetPromptRequestParams, ListPromptsRequest, ListResourcesRequest,
    PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams, Role, ServerResult,
};
use serde_json::{Value, json};

/// A tool that every server with resources, or with prompts, has.
pub(crate) struct TargetTool {
    pub(crate) target: McpTarget,
    pub(crate) name: &'static str,
    description: &'static str,
}

const RESOURCE_TOOLS: [TargetTool; 2] = [
    TargetTool {
        target: McpTarget::ListResources,
        name: "list_resources",
        description: "Lists the resources of this server: documents and data that it can give. Read one by its uri.",
    },
    TargetTool {
        target: McpTarget::ReadResource,
        name: "read_resource",
        description: "Reads a resource of this server.",
    },
];
const PROMPT_TOOLS: [TargetTool; 2] = [
    TargetTool {
        target: McpTarget::ListPrompts,
        name: "list_prompts",
        description: "Lists the prompts of this server: prepared instructions, with the arguments that they take.",
    },
    TargetTool { target: McpTarget::GetPrompt, name: "get_prompt", description: "Gets a prompt of this server." },
];

/// The tools of this kind that the operator wants of a server.
pub(crate) fn target_tools(server: &McpServer) -> impl Iterator<Item = &'static TargetTool> {
    let resources = RESOURCE_TOOLS.iter().filter(|_| server.resources);
    resources.chain(PROMPT_TOOLS.iter().filter(|_| server.prompts))
}

impl TargetTool {
    pub(crate) fn spec(&self, label: &str) -> ToolSpec {
        let text = |description: &str| json!({"type": "string", "description": description});
        let (properties, required) = match self.target {
            McpTarget::ListResources | McpTarget::ListPrompts => {
                (json!({"cursor": text("The `next_cursor` of the page before.")}), json!([]))
            }
            McpTarget::ReadResource => (json!({"uri": text("As `list_resources` or a link has it.")}), json!(["uri"])),
            McpTarget::GetPrompt | McpTarget::Tool => {
                let arguments = json!({"type": "object", "additionalProperties": {"type": "string"}});
                (json!({"name": text("As `list_prompts` has it."), "arguments": arguments}), json!(["name"]))
            }
        };
        ToolSpec {
            name: mcp_tool_name(label, self.name),
            description: self.description.to_owned(),
            parameters: json!({"type": "object", "properties": properties, "required": required}),
        }
    }
}

/// The request of a call whose arguments fit the schema. `None` for a tool of the server.
pub(crate) fn target_request(target: McpTarget, arguments: &str, failure: &FailureSlot) -> Option<ClientRequest> {
    let arguments: JsonObject = serde_json::from_str(arguments).unwrap_or_default();
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::to_owned);
    let page = || PaginatedRequestParams::default().with_cursor(text("cursor"));
    Some(match target {
        McpTarget::Tool => return None,
        McpTarget::ListResources => {
            let mut request = ListResourcesRequest::with_param(page());
            request.extensions.insert(failure.clone());
            ClientRequest::ListResourcesRequest(request)
        }
        McpTarget::ListPrompts => {
            let mut request = ListPromptsRequest::with_param(page());
            request.extensions.insert(failure.clone());
            ClientRequest::ListPromptsRequest(request)
        }
        McpTarget::ReadResource => {
            let mut request = ReadResourceRequest::new(ReadResourceRequestParams::new(text("uri").unwrap_or_default()));
            request.extensions.insert(failure.clone());
            ClientRequest::ReadResourceRequest(request)
        }
        McpTarget::GetPrompt => {
            let mut params = GetPromptRequestParams::new(text("name").unwrap_or_default());
            params.arguments = arguments.get("arguments").and_then(Value::as_object).cloned();
            let mut request = GetPromptRequest::new(params);
            request.extensions.insert(failure.clone());
            ClientRequest::GetPromptRequest(request)
        }
    })
}

/// The result of such a call.
pub(crate) fn read_target_result(label: &str, target: McpTarget, result: ServerResult, bytes_max: usize) -> ToolOutput {
    let parts = match (target, result) {
        (McpTarget::ListResources, ServerResult::ListResourcesResult(page)) => {
            let resources: Vec<Value> = page.resources.iter().map(link_json).collect();
            list_part("resources", resources, page.next_cursor)
        }
        (McpTarget::ListPrompts, ServerResult::ListPromptsResult(page)) => {
            let prompts = page.prompts.iter().filter_map(|prompt| serde_json::to_value(prompt).ok());
            list_part("prompts", prompts.collect(), page.next_cursor)
        }
        (McpTarget::ReadResource, ServerResult::ReadResourceResult(result)) => {
            result.contents.into_iter().map(read_resource).collect()
        }
        (McpTarget::GetPrompt, ServerResult::GetPromptResult(result)) => {
            let messages = result.messages.into_iter().flat_map(|message| {
                let role = match message.role {
                    Role::User => "user",
                    Role::Assistant => "assistant",
                };
                [ContentPart::text(format!("{role}:")), read_block(message.content)]
            });
            messages.collect()
        }
        _ => {
            let message =
                format!("The MCP server `{label}` answered with something that is not what it was asked for.");
            return ToolOutput::from_error(ErrorInfo::new(ErrorCode::McpProtocolError, message));
        }
    };
    bounded_output(parts, bytes_max)
}

fn list_part(name: &str, entries: Vec<Value>, next_cursor: Option<String>) -> Vec<ContentPart> {
    let mut list = JsonObject::from_iter([(name.to_owned(), entries.into())]);
    if let Some(cursor) = next_cursor {
        list.insert("next_cursor".to_owned(), cursor.into());
    }
    vec![ContentPart::text(Value::Object(list).to_string())]
}
