//! The tool that stands in for those of a server that its user has not authorized: without a token nobody knows its tools.
//!
//! The model calls it when it would need the server, and so the user learns where to authorize. The tools are there in the next
//! run: a run keeps the tools that it started with.

use crate::servers::{McpServers, ServerUser};
use crate::token_source::{TokenSource, TokenUser};
use crate::tool_list::sha256_hex;
use futures_util::stream;
use model::content::ContentPart;
use model::definition::{
    ApprovalPolicy, Definitions, McpAuth, McpServer, McpTarget, McpTool, McpToolRef, McpTransport, Tool, ToolExecutor,
    ToolSpec, mcp_tool_name,
};
use model::error::ErrorCode;
use model::ports::{BoxStream, ResolveRequest};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const TOOL: &str = "authorize";
/// No tool of a server has it: theirs are digests.
const DIGEST: &str = "authorize";

/// Adds one for each server with OAuth for which the user has no token.
pub(crate) async fn add_stand_ins(
    tokens: Option<Arc<dyn TokenSource>>,
    request: &ResolveRequest,
    resolved: Arc<Definitions>,
) -> Arc<Definitions> {
    let Some(tokens) = tokens else { return resolved };
    let mut missing = Vec::new();
    for (label, server) in request.definitions.mcp_servers_of(&request.agent) {
        let Some(user) = oauth_user(request, label, server) else { continue };
        let has_tools = resolved.tools.values().any(|tool| is_tool_of(tool, label));
        if !has_tools
            && matches!(tokens.bearer_token(&user).await, Err(error) if error.has_code(ErrorCode::McpUnauthorized))
        {
            missing.push((label, server));
        }
    }
    if missing.is_empty() {
        return resolved;
    }
    let mut completed = Definitions::clone(&resolved);
    for (label, server) in missing {
        add_stand_in(&request.definitions, &request.agent, label, server, &mut completed);
    }
    completed.digest = serde_json::to_vec(&completed).map(|json| sha256_hex(&json)).unwrap_or_default();
    Arc::new(completed)
}

fn oauth_user(request: &ResolveRequest, label: &str, server: &McpServer) -> Option<TokenUser> {
    let McpTransport::Endpoint(endpoint) = &server.program.transport else { return None };
    let auth = endpoint.auth.clone().filter(|auth| matches!(auth.as_ref(), McpAuth::OAuth(_)))?;
    Some(TokenUser { user: request.user.clone(), label: label.to_owned(), url: endpoint.url.clone(), auth })
}

fn is_tool_of(tool: &Tool, label: &str) -> bool {
    matches!(&tool.executor, ToolExecutor::Mcp(tool) if tool.server == label)
}

fn add_stand_in(definitions: &Definitions, root: &str, label: &str, server: &McpServer, completed: &mut Definitions) {
    let name = mcp_tool_name(label, TOOL);
    if completed.tools.contains_key(&name) || completed.agents.contains_key(&name) {
        return;
    }
    for agent in definitions.reachable_agents(root) {
        let names_server = |entry: &String| McpToolRef::parse(entry).is_some_and(|wanted| wanted.server == label);
        let is_user = definitions.agents.get(agent).is_some_and(|agent| agent.tools.iter().any(names_server));
        if let Some(agent) = completed.agents.get_mut(agent).filter(|_| is_user) {
            agent.tools.push(name.clone());
        }
    }
    let description = format!(
        "The tools of `{label}` cannot be used yet: the user has not authorized it. Call this tool if you need them; the \
         result says how the user can authorize it."
    );
    let parameters = json!({ "type": "object", "properties": {} });
    let spec = ToolSpec { name: name.clone(), description, parameters };
    let executor = ToolExecutor::Mcp(McpTool {
        server: label.to_owned(),
        tool: TOOL.to_owned(),
        spec_digest: DIGEST.to_owned(),
        has_user_credential: false,
        target: McpTarget::Tool,
        is_changed: false,
        program: Arc::new(server.program.clone()),
    });
    completed.tools.insert(name, Tool { approval: ApprovalPolicy::Never, ..Tool::new(spec, executor) });
}

pub(crate) fn is_stand_in(tool: &McpTool) -> bool {
    tool.spec_digest == DIGEST
}

/// The user may have authorized the server since the run started.
pub(crate) fn call(servers: McpServers, tool: McpTool, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
    Box::pin(stream::once(async move {
        let server = ServerUser {
            label: &tool.server,
            program: &tool.program,
            user: &request.user,
            thread: &request.thread,
            credential: None,
        };
        let output = match servers.connect_listed(&server, Duration::ZERO).await {
            Ok(_) => {
                let text = format!("`{}` is authorized. Its tools are there with the next message.", tool.server);
                ToolOutput { message_content: vec![ContentPart::text(text)], ..ToolOutput::default() }
            }
            Err(error) => ToolOutput::from_error(error),
        };
        ToolEvent::End(output)
    }))
}
