//! The test vocabulary: a server in a mode, a run's definitions with its tools, and calls.

use futures_util::StreamExt as _;
use mcp::{McpLimits, McpTools};
use model::content::ContentPart;
use model::definition::{
    Agent, ApprovalPolicy, CommandTool, DeclaredParameters, Definitions, McpProgram, McpScope, McpServer, McpTransport,
    OnCrash, Tool,
};
use model::error::ErrorInfo;
use model::ports::{Clock, DefinitionResolver as _, ResolveRequest, ToolRunner as _};
use model::seq::Millis;
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tools::Toolbox;

/// The fixed time of the clock.
const NOW: Millis = 1_710_000_000_800;
/// Longer than anything here takes; a test that hangs says where.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const SECRET: &str = "s3cr3t-v4lue";

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Millis {
        NOW
    }
}

/// A pool of connections, and a folder where the server of each label leaves its traces.
pub(crate) struct TestServers {
    folder: TempDir,
    pub(crate) tools: McpTools,
    /// Servers for which the requests bring a credential.
    pub(crate) credentials: Vec<String>,
}

impl TestServers {
    pub(crate) fn new() -> Self {
        Self::with_limits(McpLimits { backoff_min: Duration::from_millis(50), ..McpLimits::default() })
    }

    pub(crate) fn with_limits(limits: McpLimits) -> Self {
        let env = |name: &str| match name {
            "TOKEN" => Some(SECRET.to_owned()),
            "HIDDEN" => Some("not passed".to_owned()),
            "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
            _ => None,
        };
        let toolbox = Toolbox::new(Arc::new(env), Arc::new(Fixed)).unwrap();
        let (folder, tools) = (tempfile::tempdir().unwrap(), McpTools::new(toolbox, limits));
        Self { folder, tools, credentials: Vec::new() }
    }

    /// A file that the server wrote.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.lines("pids").iter().map(|pid| pid.parse().unwrap()).collect()
    }

    /// A server in a mode; calls need no approval.
    pub(crate) fn server(&self, mode: &str) -> McpServer {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/servers/server.py");
        let command = CommandTool {
            command: vec!["python3".to_owned(), script.display().to_string(), mode.to_owned()],
            dir: None,
            env_pass: vec!["PATH".to_owned()],
            env: [
                ("T".to_owned(), self.folder.path().display().to_string()),
                ("KEY".to_owned(), "env:TOKEN".to_owned()),
            ]
            .into(),
        };
        McpServer {
            program: McpProgram {
                transport: McpTransport::Command(command),
                scope: McpScope::User,
                start_timeout_ms: 15_000,
            },
            allow: None,
            deny: Vec::new(),
            approval: [("*".to_owned(), ApprovalPolicy::Never)].into(),
            timeout_ms: None,
            output_bytes_max: None,
            required: true,
            idempotent: Vec::new(),
            on_crash: OnCrash::Unknown,
            resources: false,
            prompts: false,
            pin: Default::default(),
        }
    }

    /// The definitions of a run whose agent has all tools of a server called `s`.
    pub(crate) async fn resolve(&self, server: McpServer) -> Result<Arc<Definitions>, ErrorInfo> {
        self.resolve_as("alice", "thr_1", server).await
    }

    pub(crate) async fn resolve_as(
        &self,
        user: &str,
        thread: &str,
        server: McpServer,
    ) -> Result<Arc<Definitions>, ErrorInfo> {
        let request = ResolveRequest {
            user: user.into(),
            thread: thread.into(),
            run: "task_R".into(),
            credentials: self.credentials.clone(),
            agent: "helper".to_owned(),
            definitions: Arc::new(definitions(server, &["mcp:s"])),
        };
        tokio::time::timeout(PATIENCE, self.tools.resolve_definitions(request)).await.expect("it answers in time")
    }

    /// The run's definitions with the tools of a server in this mode.
    pub(crate) async fn run_with(&self, mode: &str) -> Arc<Definitions> {
        self.resolve(self.server(mode)).await.expect("the server lists its tools")
    }

    /// All events of a call of `s__NAME` by alice.
    pub(crate) async fn events(&self, run: &Definitions, name: &str, arguments: &str) -> Vec<ToolEvent> {
        self.events_of(call_request(run, name, arguments)).await
    }

    pub(crate) async fn events_of(&self, request: ToolRequest) -> Vec<ToolEvent> {
        let name = request.name.clone();
        let all = self.tools.call_tool(request).collect();
        tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("the call of {name} does not end"))
    }

    pub(crate) async fn call(&self, run: &Definitions, name: &str, arguments: &str) -> ToolOutput {
        end_of(self.events(run, name, arguments).await)
    }

    pub(crate) async fn call_within(&self, ms: Millis, run: &Definitions, name: &str) -> ToolOutput {
        let request = ToolRequest { deadline: NOW + ms, ..call_request(run, name, "{}") };
        end_of(self.events_of(request).await)
    }
}

pub(crate) fn definitions(server: McpServer, tools: &[&str]) -> Definitions {
    let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
    let agent = Agent { name: "helper".to_owned(), tools, ..Agent::default() };
    Definitions {
        agents: [("helper".to_owned(), agent)].into(),
        mcp: [("s".to_owned(), server)].into(),
        ..Definitions::default()
    }
}

fn end_of(events: Vec<ToolEvent>) -> ToolOutput {
    match events.into_iter().next_back() {
        Some(ToolEvent::End(output)) => output,
        Some(ToolEvent::Lost(error)) => ToolOutput::from_error(error),
        other => panic!("the last event is {other:?}"),
    }
}

pub(crate) fn find_tool<'a>(run: &'a Definitions, name: &str) -> &'a Tool {
    run.tools.get(&format!("s__{name}")).unwrap_or_else(|| panic!("no tool {name}"))
}

pub(crate) fn call_request(run: &Definitions, name: &str, arguments: &str) -> ToolRequest {
    let tool = find_tool(run, name);
    ToolRequest {
        user: "alice".into(),
        thread: "thr_1".into(),
        run: "task_R".into(),
        task: "task_R".into(),
        call_id: "call_R2".into(),
        attempt: 1,
        name: tool.spec.name.clone(),
        arguments: arguments.to_owned(),
        deadline: NOW + 20_000,
        executor: Arc::new(tool.executor.clone()),
        parameters: DeclaredParameters::from_schema(&tool.spec.parameters),
        output_bytes_max: 1024 * 1024,
        answers: None,
    }
}

/// The text of a result that is no error.
pub(crate) fn text(output: &ToolOutput) -> &str {
    assert_eq!(output.error, None);
    match output.message_content.as_slice() {
        [ContentPart::Text { text, .. }] => text,
        other => panic!("{other:?}"),
    }
}

/// The code and the message of an error.
pub(crate) fn error(output: &ToolOutput) -> (&str, &str) {
    let error = output.error.as_ref().unwrap_or_else(|| panic!("{output:?} is no error"));
    assert_eq!(output.message_content, [ContentPart::text(&error.message)], "the model reads it");
    (&error.code, &error.message)
}

pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits until no process of the list is left.
pub(crate) async fn wait_gone(pids: &[u32]) {
    wait_until("the processes end", || pids.iter().all(|pid| !is_alive(*pid))).await;
}

pub(crate) async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited too long: {what}"));
}
