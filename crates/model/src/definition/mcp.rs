//! MCP servers: programs and URLs that offer tools. Which tools is known only when a server has been asked, so an agent names the
//! server, and the definitions that a run keeps name the tools.

use super::{Agent, ApprovalPolicy, Definitions, McpTransport, OnCrash, ToolExecutor};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How an agent's list of tools begins the name of a server, or of one of its tools.
const PREFIX: &str = "mcp:";
/// Matches every tool.
const ANY_TOOL: &str = "*";
/// The longest name of a tool that providers accept.
const TOOL_NAME_BYTES_MAX: usize = 64;
/// Hexadecimal digits of a digest that tell two long names apart.
const NAME_DIGEST_CHARS: usize = 8;

/// A server as the operator declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpServer {
    pub program: McpProgram,
    /// Names of tools, or beginnings of names followed by `*`; `None` allows all.
    pub allow: Option<Vec<String>>,
    /// The same; what it matches is not offered, whatever `allow` says.
    pub deny: Vec<String>,
    /// By the same patterns. A name takes precedence over a longer beginning, and that over a shorter one.
    pub approval: BTreeMap<String, ApprovalPolicy>,
    /// `None` is [`crate::limits::RunLimits::tool_timeout_ms`].
    pub timeout_ms: Option<u64>,
    /// `None` is [`crate::limits::RunLimits::tool_output_bytes_max`].
    pub output_bytes_max: Option<usize>,
    /// Whether a run fails that would have to start without it.
    pub required: bool,
    /// By the same patterns as `allow`: tools that may be called again when the server was lost in the middle of a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idempotent: Vec<String>,
    /// The result of a call that was lost, of all other tools.
    #[serde(default, skip_serializing_if = "OnCrash::is_default")]
    pub on_crash: OnCrash,
    /// Whether tools read its resources.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resources: bool,
    /// Whether tools get its prompts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompts: bool,
    #[serde(default, skip_serializing_if = "McpPin::is_default")]
    pub pin: McpPin,
}

/// What happens when a server describes a tool in another way than before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPin {
    /// A person is asked before it is called.
    #[default]
    Ask,
    /// Nothing, from one run to the next.
    Off,
    /// Tools are offered only with these hashes ([`tool_hash`]). Those that are not named may be anything.
    Tools(BTreeMap<String, String>),
}

impl McpPin {
    fn is_default(&self) -> bool {
        *self == Self::Ask
    }
}

/// The hash of a tool in the config, of the digest of its description.
#[must_use]
pub fn tool_hash(digest: &str) -> String {
    format!("sha256:{digest}")
}

/// How a server is reached, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpProgram {
    #[serde(flatten)]
    pub transport: McpTransport,
    pub scope: McpScope,
    /// For the start, the handshake and the list of tools together.
    pub start_timeout_ms: u64,
}

/// Who shares a process or a session of a server, and with it whatever the server remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpScope {
    /// The runs of one user.
    #[default]
    User,
    /// The runs of one thread.
    Thread,
    /// All runs.
    Shared,
}

/// A tool of a server, as a run keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpTool {
    /// The server's name in the configuration.
    pub server: String,
    /// The name that the server knows.
    pub tool: String,
    /// The digest of everything that the server said about the tool.
    pub spec_digest: String,
    pub program: Arc<McpProgram>,
    #[serde(default, skip_serializing_if = "McpTarget::is_tool")]
    pub target: McpTarget,
    /// Whether its user knows another description of it: until a person approves a call, every call requires it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_changed: bool,
    /// The request of the run brought the user's credential for the server. Its calls carry that one and no other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_user_credential: bool,
}

/// What a call asks of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTarget {
    /// A tool that the server lists.
    #[default]
    Tool,
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

impl McpTarget {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_tool(&self) -> bool {
        *self == Self::Tool
    }
}

/// An entry of an agent's tools: `mcp:SERVER` or `mcp:SERVER/TOOL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpToolRef<'a> {
    pub server: &'a str,
    /// `None` is every tool of the server.
    pub tool: Option<&'a str>,
}

impl<'a> McpToolRef<'a> {
    /// `None` if the entry is the name of another tool or of an agent.
    #[must_use]
    pub fn parse(entry: &'a str) -> Option<Self> {
        let rest = entry.strip_prefix(PREFIX)?;
        Some(match rest.split_once('/') {
            Some((server, tool)) => Self { server, tool: Some(tool) },
            None => Self { server: rest, tool: None },
        })
    }
}

/// The name under which the model calls a tool of a server.
#[must_use]
pub fn mcp_tool_name(server: &str, tool: &str) -> String {
    let full = format!("{server}__{tool}");
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let name: String = full.chars().map(|letter| if is_allowed(letter) { letter } else { '_' }).collect();
    if name.len() <= TOOL_NAME_BYTES_MAX {
        return name;
    }
    let digest: String = Sha256::digest(&full).iter().map(|byte| format!("{byte:02x}")).collect();
    // All of both is ASCII.
    let beginning = name.get(..TOOL_NAME_BYTES_MAX - NAME_DIGEST_CHARS - 1).unwrap_or_default();
    format!("{beginning}_{}", digest.get(..NAME_DIGEST_CHARS).unwrap_or_default())
}

impl McpServer {
    /// Whether the operator allows the tool.
    #[must_use]
    pub fn offers_tool(&self, tool: &str) -> bool {
        let matches = |pattern: &String| pattern_rank(pattern, tool).is_some();
        self.allow.as_ref().is_none_or(|allow| allow.iter().any(matches)) && !self.denies_tool(tool)
    }

    #[must_use]
    pub fn denies_tool(&self, tool: &str) -> bool {
        self.deny.iter().any(|pattern| pattern_rank(pattern, tool).is_some())
    }

    /// Whether a call of the tool may be repeated.
    #[must_use]
    pub fn is_idempotent(&self, tool: &str) -> bool {
        self.idempotent.iter().any(|pattern| pattern_rank(pattern, tool).is_some())
    }

    /// When a person must approve a call of the tool: always, unless the operator says otherwise.
    #[must_use]
    pub fn approval_of(&self, tool: &str) -> ApprovalPolicy {
        let ranked = self.approval.iter().filter_map(|(pattern, policy)| Some((pattern_rank(pattern, tool)?, policy)));
        ranked.max_by_key(|(rank, _)| *rank).map_or(ApprovalPolicy::Always, |(_, policy)| policy.clone())
    }
}

/// How well a pattern matches a name: the longer the better, and the whole name best. `None` if it does not.
fn pattern_rank(pattern: &str, name: &str) -> Option<usize> {
    match pattern.strip_suffix(ANY_TOOL) {
        Some(beginning) => name.starts_with(beginning).then_some(beginning.len()),
        None => (pattern == name).then_some(usize::MAX),
    }
}

impl Definitions {
    /// The agents that a run of `root` may come to: itself, those that it calls or hands over to, and theirs.
    #[must_use]
    pub fn reachable_agents(&self, root: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&Agent> = self.agents.get(root).into_iter().collect();
        while let Some(agent) = open.pop() {
            if !found.insert(agent.name.as_str()) {
                continue;
            }
            let called = agent.tools.iter().flat_map(|name| match self.tools.get(name).map(|tool| &tool.executor) {
                Some(ToolExecutor::Agent { agent, others }) => std::iter::once(agent).chain(others).collect(),
                Some(_) => Vec::new(),
                None => vec![name],
            });
            let heirs = agent.handoffs.iter().map(|handoff| &handoff.agent);
            open.extend(called.chain(heirs).filter_map(|name| self.agents.get(name)));
        }
        found
    }

    /// The servers that a run of `root` needs.
    #[must_use]
    pub fn mcp_servers_of(&self, root: &str) -> BTreeMap<&str, &McpServer> {
        if self.mcp.is_empty() {
            return BTreeMap::new();
        }
        let agents = self.reachable_agents(root).into_iter().filter_map(|name| self.agents.get(name));
        let entries = agents.flat_map(|agent| &agent.tools).filter_map(|entry| McpToolRef::parse(entry));
        entries
            .filter_map(|entry| self.mcp.get_key_value(entry.server))
            .map(|(name, server)| (name.as_str(), server))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{CommandTool, Handoff, McpEndpoint};

    fn server(allow: Option<&[&str]>, deny: &[&str], approval: &[(&str, ApprovalPolicy)]) -> McpServer {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        McpServer {
            program: McpProgram {
                transport: McpTransport::Command(CommandTool::default()),
                scope: McpScope::User,
                start_timeout_ms: 1,
            },
            allow: allow.map(texts),
            deny: texts(deny),
            approval: approval.iter().map(|(pattern, policy)| ((*pattern).to_owned(), policy.clone())).collect(),
            timeout_ms: None,
            output_bytes_max: None,
            required: false,
            idempotent: texts(&["list", "read_*"]),
            on_crash: OnCrash::Unknown,
            resources: false,
            prompts: false,
            pin: McpPin::Ask,
        }
    }

    #[test]
    fn deny_wins_and_no_allow_list_allows_all() {
        let all = server(None, &[], &[]);
        assert!(all.offers_tool("read") && all.offers_tool(""));
        let some = server(Some(&["read_*", "list"]), &["read_secret*"], &[]);
        let offered = ["read_file", "list", "read_secret", "read_secrets", "lists", "write"];
        assert_eq!(offered.map(|tool| some.offers_tool(tool)), [true, true, false, false, false, false]);
        assert!(!server(Some(&[]), &[], &[]).offers_tool("read"));
        assert_eq!(["list", "read_x", "lists"].map(|tool| all.is_idempotent(tool)), [true, true, false]);
    }

    #[test]
    fn the_most_exact_approval_counts_and_without_one_a_person_decides() {
        let never = ApprovalPolicy::Never;
        let some = server(None, &[], &[("read_*", never.clone()), ("read_all", ApprovalPolicy::Always)]);
        assert_eq!(some.approval_of("read_one"), never);
        assert_eq!(some.approval_of("read_all"), ApprovalPolicy::Always);
        assert_eq!(some.approval_of("write"), ApprovalPolicy::Always);
        assert_eq!(server(None, &[], &[("*", never.clone())]).approval_of("write"), never);
    }

    #[test]
    fn a_run_needs_the_servers_of_every_agent_that_it_may_come_to() {
        let agent = |name: &str, tools: &[&str], heir: Option<&str>| Agent {
            name: name.to_owned(),
            tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
            handoffs: heir
                .map(|agent| Handoff { agent: agent.to_owned(), history: Default::default() })
                .into_iter()
                .collect(),
            ..Agent::default()
        };
        let agents = [
            agent("front", &["helper", "front"], Some("heir")),
            agent("helper", &["mcp:files/read"], None),
            agent("heir", &["mcp:wiki"], Some("front")),
            agent("other", &["mcp:clock", "mcp:gone"], None),
        ];
        let definitions = Definitions {
            agents: agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect(),
            mcp: ["files", "wiki", "clock"].map(|name| (name.to_owned(), server(None, &[], &[]))).into(),
            ..Definitions::default()
        };
        let needed = |root| definitions.mcp_servers_of(root).into_keys().collect::<Vec<_>>();
        assert_eq!(needed("front"), ["files", "wiki"]);
        assert_eq!(needed("helper"), ["files"]);
        assert_eq!(needed("other"), ["clock"]);
        assert_eq!(needed("provider/model"), [""; 0]);
    }

    #[test]
    fn names_are_those_that_providers_accept() {
        assert_eq!(mcp_tool_name("files", "read"), "files__read");
        assert_eq!(mcp_tool_name("files", "a.b/ü"), "files__a_b__");
        let (long, other) = (mcp_tool_name("files", &"x".repeat(70)), mcp_tool_name("files", &"x".repeat(71)));
        assert_eq!((long.len(), other.len()), (64, 64));
        assert_ne!(long, other);
    }

    #[test]
    fn stored_definitions_say_how_a_server_is_reached() {
        let json = |transport: McpTransport| {
            let program = McpProgram { transport, scope: McpScope::User, start_timeout_ms: 1 };
            let json = serde_json::to_string(&program).unwrap();
            assert_eq!(serde_json::from_str::<McpProgram>(&json).unwrap(), program);
            json
        };
        let command = CommandTool { command: vec!["sh".to_owned()], ..CommandTool::default() };
        assert_eq!(
            json(McpTransport::Command(command)),
            r#"{"command":{"command":["sh"],"dir":null,"env_pass":[],"env":{}},"scope":"user","start_timeout_ms":1}"#
        );
        let endpoint = McpEndpoint {
            url: "https://example.org/mcp".to_owned(),
            headers: [("X-Key".to_owned(), "env:KEY".to_owned())].into(),
            auth: None,
        };
        assert_eq!(
            json(McpTransport::Endpoint(endpoint)),
            r#"{"endpoint":{"url":"https://example.org/mcp","headers":{"X-Key":"env:KEY"}},"scope":"user","start_timeout_ms":1}"#
        );
    }

    #[test]
    fn an_entry_names_a_server_or_one_of_its_tools() {
        assert_eq!(McpToolRef::parse("files"), None);
        assert_eq!(McpToolRef::parse("mcp:files"), Some(McpToolRef { server: "files", tool: None }));
        assert_eq!(McpToolRef::parse("mcp:files/a/b"), Some(McpToolRef { server: "files", tool: Some("a/b") }));
    }
}
