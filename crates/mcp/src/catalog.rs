//! Completes the definitions of a run with the tools that its servers list.

use crate::run_credentials::RunCredentials;
use crate::servers::{McpServers, ServerUser};
use crate::tool_list::{ListedTool, ToolList, model_tool_name, sha256_hex};
use futures_util::future::join_all;
use model::definition::{Definitions, McpProgram, McpServer, McpTool, McpToolRef, Tool, ToolExecutor, ToolSpec};
use model::error::{ErrorCode, ErrorInfo};
use model::ports::ResolveRequest;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a run waits for the next start of a server that has failed: a broken server delays no run for long.
const BACKOFF_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) async fn resolve(
    servers: McpServers,
    credentials: RunCredentials,
    request: ResolveRequest,
) -> Result<Arc<Definitions>, ErrorInfo> {
    let needed = request.definitions.mcp_servers_of(&request.agent);
    let listing = needed.iter().map(|(label, server)| list_tools(&servers, &credentials, &request, label, server));
    let listed = join_all(listing).await;
    let mut lists = BTreeMap::new();
    for ((label, server), list) in needed.into_iter().zip(listed) {
        match list {
            Ok(list) => {
                lists.insert(label.to_owned(), list);
            }
            Err(error) if server.required => return Err(error),
            Err(error) => tracing::warn!(server = label, error = error.message, "a run starts without an MCP server"),
        }
    }
    let merging = tokio::task::spawn_blocking(move || merge_tools(&request, &lists));
    merging.await.unwrap_or_else(|_| Err(ErrorInfo::new(ErrorCode::Internal, "the tools cannot be read")))
}

async fn list_tools(
    servers: &McpServers,
    credentials: &RunCredentials,
    request: &ResolveRequest,
    label: &str,
    server: &McpServer,
) -> Result<Arc<ToolList>, ErrorInfo> {
    let is_expected = request.credentials.iter().any(|server| server == label);
    let credential = credentials.find(&request.run, label, is_expected)?;
    let user = ServerUser { label, program: &server.program, user: &request.user, thread: &request.thread, credential };
    let (_connection, list) = servers.connect_listed(&user, BACKOFF_PATIENCE).await?;
    servers.check_list_rate(label, &list)?;
    Ok(list)
}

/// Replaces the entries `mcp:…` of every agent by names of tools.
fn merge_tools(
    request: &ResolveRequest,
    lists: &BTreeMap<String, Arc<ToolList>>,
) -> Result<Arc<Definitions>, ErrorInfo> {
    let ResolveRequest { definitions, agent: root, credentials, .. } = request;
    let mut resolved = Definitions::clone(definitions);
    resolved.mcp.clear();
    let reachable = definitions.reachable_agents(root);
    let programs: BTreeMap<&str, Arc<McpProgram>> =
        definitions.mcp.iter().map(|(label, server)| (label.as_str(), Arc::new(server.program.clone()))).collect();
    for agent in resolved.agents.values_mut() {
        let mut names: Vec<String> = Vec::new();
        for entry in std::mem::take(&mut agent.tools) {
            let Some(wanted) = McpToolRef::parse(&entry) else {
                names.push(entry);
                continue;
            };
            // Agents that this run cannot come to were not asked about.
            let is_reachable = reachable.contains(agent.name.as_str());
            let list = lists.get(wanted.server).filter(|_| is_reachable);
            let server = definitions.mcp.get(wanted.server);
            let (Some(list), Some(server), Some(program)) = (list, server, programs.get(wanted.server)) else {
                continue;
            };
            for (tool, listed) in offered_tools(server, list, wanted)? {
                let name = model_tool_name(wanted.server, tool);
                let mut added = new_tool(&name, wanted.server, tool, listed, server, program);
                if let ToolExecutor::Mcp(executor) = &mut added.executor {
                    executor.has_user_credential = credentials.iter().any(|server| server == wanted.server);
                }
                // A name of the operator stays what it is, and of two that become one the first in the list is taken.
                let is_taken = definitions.agents.contains_key(&name)
                    || resolved.tools.get(&name).is_some_and(|known| known.executor != added.executor);
                if is_taken {
                    tracing::warn!(
                        server = wanted.server,
                        tool,
                        name,
                        "a tool of an MCP server is left out: its name is taken"
                    );
                } else if !names.contains(&name) {
                    resolved.tools.insert(name.clone(), added);
                    names.push(name);
                }
            }
        }
        agent.tools = names;
    }
    resolved.digest = serde_json::to_vec(&resolved).map(|json| sha256_hex(&json)).unwrap_or_default();
    Ok(Arc::new(resolved))
}

/// The tools that an entry names and the operator allows.
fn offered_tools<'a>(
    server: &McpServer,
    list: &'a ToolList,
    wanted: McpToolRef<'_>,
) -> Result<Vec<(&'a str, &'a ListedTool)>, ErrorInfo> {
    let Some(name) = wanted.tool else {
        let tools = list.tools.iter().map(|(name, tool)| (name.as_str(), tool));
        return Ok(tools.filter(|(name, _)| server.offers_tool(name)).collect());
    };
    match list.tools.get_key_value(name).filter(|_| server.offers_tool(name)) {
        Some((name, tool)) => Ok(vec![(name, tool)]),
        None => {
            let message = format!("The MCP server `{}` does not offer the tool `{name}`.", wanted.server);
            if server.required {
                return Err(ErrorInfo::new(ErrorCode::McpUnavailable, message));
            }
            tracing::warn!(
                server = wanted.server,
                tool = name,
                "a run starts without a tool that the MCP server does not offer"
            );
            Ok(Vec::new())
        }
    }
}

fn new_tool(
    name: &str,
    label: &str,
    tool: &str,
    listed: &ListedTool,
    server: &McpServer,
    program: &Arc<McpProgram>,
) -> Tool {
    let spec = ToolSpec {
        name: name.to_owned(),
        description: listed.description.clone(),
        parameters: listed.parameters.clone(),
    };
    let executor = ToolExecutor::Mcp(McpTool {
        server: label.to_owned(),
        tool: tool.to_owned(),
        spec_digest: listed.digest.clone(),
        program: Arc::clone(program),
        has_user_credential: false,
    });
    Tool {
        display_name: listed.title.clone(),
        approval: server.approval_of(tool),
        timeout_ms: server.timeout_ms,
        output_bytes_max: server.output_bytes_max,
        ..Tool::new(spec, executor)
    }
}
