//! Completes the definitions of a run with the tools that its servers list.

use crate::run_credentials::RunCredentials;
use crate::servers::{McpServers, ServerUser};
use crate::targets::{TargetTool, target_tools};
use crate::tool_list::{ListedTool, ToolList, sha256_hex};
use futures_util::future::join_all;
use model::definition::{
    Agent, ApprovalPolicy, Definitions, McpList, McpPin, McpProgram, McpServer, McpTarget, McpTool, McpToolRef, Tool,
    ToolExecutor, ToolSpec, mcp_list_digest, mcp_tool_name, tool_hash,
};
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{McpPins, ResolveRequest};
use model::{Millis, ThreadId, UserId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a run waits for the next start of a server that has failed: a broken server delays no run for long.
const BACKOFF_PATIENCE: Duration = Duration::from_secs(1);
/// Reasons for leaving out a tool that are shown.
const LEFT_OUT_SHOWN_MAX: usize = 8;

/// Names of tools that their user knows otherwise, by server.
type ChangedTools = BTreeMap<String, BTreeSet<String>>;

/// The tools that a user knows otherwise. Those that are new to the user are known from now on.
async fn changed_tools(
    pins: &dyn McpPins,
    user: &UserId,
    label: &str,
    server: &McpServer,
    list: &ToolList,
    now: Millis,
) -> BTreeSet<String> {
    let offered = list.tools.iter().filter(|(name, _)| server.offers_tool(name));
    let digests: BTreeMap<String, String> = offered.map(|(name, tool)| (name.clone(), tool.digest.clone())).collect();
    let known = pins.pin_new(user, label, &digests, now).await.unwrap_or_else(|error| {
        tracing::warn!(server = label, %error, "it is not known whether tools have changed: people are asked");
        BTreeMap::new()
    });
    digests.into_iter().filter(|(name, digest)| known.get(name) != Some(digest)).map(|(name, _)| name).collect()
}

/// What each server answered, by its label.
type ServerAnswers = BTreeMap<String, Result<Arc<ToolList>, ErrorInfo>>;

/// A tool of a server, as the operator pins it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDescription {
    /// The name that the server knows.
    pub name: String,
    pub description: String,
    /// `sha256:…`
    pub hash: String,
    /// Whether `allow` and `deny` let agents have it.
    pub is_allowed: bool,
}

/// Connects to a server and describes its tools.
pub(crate) async fn inspect(
    servers: &McpServers,
    label: &str,
    server: &McpServer,
) -> Result<Vec<ToolDescription>, ErrorInfo> {
    let (user, thread) = (UserId::from("operator"), ThreadId::from("inspection"));
    let user = ServerUser { label, program: &server.program, user: &user, thread: &thread, credential: None };
    let (_connection, list) = servers.connect_listed(&user, BACKOFF_PATIENCE).await?;
    let describe = |(name, tool): (&String, &ListedTool)| ToolDescription {
        name: name.clone(),
        description: tool.description.clone(),
        hash: tool_hash(&tool.digest),
        is_allowed: server.offers_tool(name),
    };
    Ok(list.tools.iter().map(describe).collect())
}

pub(crate) async fn resolve(
    servers: &McpServers,
    credentials: &RunCredentials,
    pins: Option<&dyn McpPins>,
    now: Millis,
    request: ResolveRequest,
) -> Result<Arc<Definitions>, ErrorInfo> {
    let needed = request.definitions.mcp_servers_of(&request.agent);
    let listing = needed.iter().map(|(label, server)| list_tools(servers, credentials, &request, label, server));
    let listed = join_all(listing).await;
    let mut changed = ChangedTools::new();
    let mut answers = ServerAnswers::new();
    for ((label, server), answer) in needed.into_iter().zip(listed) {
        match &answer {
            Err(error) if server.required => return Err(error.clone()),
            Err(error) => tracing::warn!(server = label, error = error.message, "a run starts without an MCP server"),
            Ok(_) => {}
        }
        if let (McpPin::Ask, Ok(list), Some(pins)) = (&server.pin, &answer, pins) {
            changed.insert(label.to_owned(), changed_tools(pins, &request.user, label, server, list, now).await);
        }
        let answer = answer.map_err(|error| servers.limit_list_errors(label, error));
        answers.insert(label.to_owned(), answer);
    }
    let merging = tokio::task::spawn_blocking(move || merge_tools(&request, &answers, &changed));
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
    answers: &ServerAnswers,
    changed: &ChangedTools,
) -> Result<Arc<Definitions>, ErrorInfo> {
    let ResolveRequest { definitions, agent: root, credentials, .. } = request;
    let mut merger = ToolMerger {
        definitions,
        credentials,
        answers,
        changed,
        programs: definitions
            .mcp
            .iter()
            .map(|(label, server)| (label.as_str(), Arc::new(server.program.clone())))
            .collect(),
        tools: definitions.tools.clone(),
        lists: BTreeMap::new(),
        left_out: BTreeMap::new(),
    };
    let reachable = definitions.reachable_agents(root);
    let mut agents = definitions.agents.clone();
    for agent in agents.values_mut() {
        // Agents that this run cannot come to were not asked about.
        let is_reachable = reachable.contains(agent.name.as_str());
        merger.replace_entries(agent, is_reachable)?;
    }
    let ToolMerger { tools, lists, left_out, .. } = merger;
    let mut resolved =
        Definitions { agents, tools, mcp: BTreeMap::new(), mcp_lists: lists, ..Definitions::clone(definitions) };
    complete_lists(&mut resolved, answers, &left_out);
    resolved.digest = serde_json::to_vec(&resolved).map(|json| sha256_hex(&json)).unwrap_or_default();
    Ok(Arc::new(resolved))
}

struct ToolMerger<'a> {
    definitions: &'a Definitions,
    /// The servers for which the request of the run brought its user's credential.
    credentials: &'a [String],
    answers: &'a ServerAnswers,
    changed: &'a ChangedTools,
    programs: BTreeMap<&'a str, Arc<McpProgram>>,
    tools: BTreeMap<String, Tool>,
    lists: BTreeMap<String, McpList>,
    /// Why tools are not offered, by server.
    left_out: BTreeMap<String, BTreeSet<String>>,
}

impl ToolMerger<'_> {
    fn replace_entries(&mut self, agent: &mut Agent, is_reachable: bool) -> Result<(), ErrorInfo> {
        let mut names: Vec<String> = Vec::new();
        for entry in std::mem::take(&mut agent.tools) {
            match McpToolRef::parse(&entry) {
                None => names.push(entry),
                Some(wanted) if is_reachable => self.add_tools(&agent.name, wanted, &mut names)?,
                Some(_) => {}
            }
        }
        agent.tools = names;
        Ok(())
    }

    fn add_tools(&mut self, agent: &str, wanted: McpToolRef<'_>, names: &mut Vec<String>) -> Result<(), ErrorInfo> {
        let label = wanted.server;
        let (Some(server), Some(program)) = (self.definitions.mcp.get(label), self.programs.get(label)) else {
            return Ok(());
        };
        self.lists.entry(label.to_owned()).or_default().agents.insert(agent.to_owned());
        let Some(Ok(list)) = self.answers.get(label) else { return Ok(()) };
        let left_out = self.left_out.entry(label.to_owned()).or_default();
        left_out.extend(list.left_out.iter().cloned());
        let mut offered: Vec<Tool> = Vec::new();
        let targets: Vec<&TargetTool> = target_tools(server)
            .filter(|tool| wanted.tool.is_none_or(|name| name == tool.name) && !server.denies_tool(tool.name))
            .collect();
        // An entry may name a tool that reads resources, unless the server has one of its own with that name.
        let is_target = |name: &str| targets.iter().any(|tool| tool.name == name) && !list.tools.contains_key(name);
        if !wanted.tool.is_some_and(is_target) {
            let tools = offered_tools(server, list, wanted, left_out)?;
            offered.extend(tools.into_iter().map(|(tool, listed)| {
                let mut added = new_tool(&mcp_tool_name(label, tool), label, tool, listed, server, program);
                if self.changed.get(label).is_some_and(|changed| changed.contains(tool)) {
                    require_consent(&mut added);
                }
                added
            }));
        }
        offered.extend(targets.into_iter().map(|tool| new_target_tool(label, tool, server, program)));
        let has_user_credential = self.credentials.iter().any(|server| server == label);
        for mut added in offered {
            if let ToolExecutor::Mcp(executor) = &mut added.executor {
                executor.has_user_credential = has_user_credential;
            }
            let name = added.spec.name.clone();
            // A name of the operator stays what it is, and of two that become one the first in the list is taken.
            let is_taken = self.definitions.agents.contains_key(&name)
                || self.tools.get(&name).is_some_and(|known| known.executor != added.executor);
            if is_taken {
                left_out.insert(format!("`{name}` is the name of another tool"));
            } else if !names.contains(&name) {
                self.tools.insert(name.clone(), added);
                names.push(name);
            }
        }
        Ok(())
    }
}

/// Says in the lists what is missing, and gives them their digests.
fn complete_lists(resolved: &mut Definitions, answers: &ServerAnswers, left_out: &BTreeMap<String, BTreeSet<String>>) {
    let labels: Vec<String> = resolved.mcp_lists.keys().cloned().collect();
    for label in labels {
        let error = match answers.get(&label) {
            Some(Err(error)) => Some(error.message.clone()),
            _ => left_out.get(&label).and_then(|reasons| describe_left_out(&label, reasons)),
        };
        if let Some(list) = resolved.mcp_lists.get_mut(&label) {
            list.error = error;
        }
        let digest =
            matches!(answers.get(&label), Some(Ok(_))).then(|| mcp_list_digest(&resolved.mcp_list_action(&label)));
        if let Some(list) = resolved.mcp_lists.get_mut(&label) {
            list.digest = digest;
        }
    }
}

fn describe_left_out(label: &str, reasons: &BTreeSet<String>) -> Option<String> {
    if reasons.is_empty() {
        return None;
    }
    let shown: Vec<&str> = reasons.iter().take(LEFT_OUT_SHOWN_MAX).map(String::as_str).collect();
    let more = reasons.len().saturating_sub(shown.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    tracing::warn!(
        server = label,
        tools = reasons.len(),
        reasons = shown.join("; "),
        "tools of an MCP server are left out"
    );
    Some(format!("Tools are left out: {}{more}.", shown.join("; ")))
}

/// The tools that an entry names and the operator allows.
fn offered_tools<'a>(
    server: &McpServer,
    list: &'a ToolList,
    wanted: McpToolRef<'_>,
    left_out: &mut BTreeSet<String>,
) -> Result<Vec<(&'a str, &'a ListedTool)>, ErrorInfo> {
    let mut is_pinned = |name: &str, tool: &ListedTool| match pin_mismatch(server, name, tool) {
        None => true,
        Some(why) => {
            left_out.insert(why);
            false
        }
    };
    let Some(name) = wanted.tool else {
        let tools = list.tools.iter().map(|(name, tool)| (name.as_str(), tool));
        return Ok(tools.filter(|(name, tool)| server.offers_tool(name) && is_pinned(name, tool)).collect());
    };
    let found = list.tools.get_key_value(name).filter(|_| server.offers_tool(name));
    let why = match found {
        Some((name, tool)) if is_pinned(name, tool) => return Ok(vec![(name, tool)]),
        Some((name, tool)) => pin_mismatch(server, name, tool).unwrap_or_default(),
        None => format!("`{name}` is not offered"),
    };
    if server.required {
        let message = format!("A tool of the MCP server `{}` is missing: {why}.", wanted.server);
        return Err(ErrorInfo::new(ErrorCode::McpUnavailable, message));
    }
    left_out.insert(why);
    Ok(Vec::new())
}

/// Why a tool is not the one that the operator has pinned.
fn pin_mismatch(server: &McpServer, name: &str, tool: &ListedTool) -> Option<String> {
    let McpPin::Tools(pins) = &server.pin else { return None };
    let hash = tool_hash(&tool.digest);
    let pinned = pins.get(name).filter(|pinned| **pinned != hash)?;
    Some(format!("`{name}` has changed: its hash is {hash}, and the config pins {pinned}"))
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
        target: McpTarget::Tool,
        is_changed: false,
        has_user_credential: false,
    });
    with_policies(Tool { display_name: listed.title.clone(), ..Tool::new(spec, executor) }, tool, server)
}

/// A tool that reads resources or gets prompts. Reading may be repeated.
fn new_target_tool(label: &str, tool: &TargetTool, server: &McpServer, program: &Arc<McpProgram>) -> Tool {
    let executor = ToolExecutor::Mcp(McpTool {
        server: label.to_owned(),
        tool: tool.name.to_owned(),
        spec_digest: String::new(),
        program: Arc::clone(program),
        target: tool.target,
        is_changed: false,
        has_user_credential: false,
    });
    let added = with_policies(Tool::new(tool.spec(label), executor), tool.name, server);
    Tool { idempotent: true, ..added }
}

/// Nobody has approved what the server says of the tool now.
fn require_consent(tool: &mut Tool) {
    if let ToolExecutor::Mcp(executor) = &mut tool.executor {
        executor.is_changed = true;
        tool.approval = ApprovalPolicy::Always;
    }
}

fn with_policies(added: Tool, tool: &str, server: &McpServer) -> Tool {
    Tool {
        approval: server.approval_of(tool),
        idempotent: server.is_idempotent(tool),
        on_crash: server.on_crash,
        timeout_ms: server.timeout_ms,
        output_bytes_max: server.output_bytes_max,
        ..added
    }
}
