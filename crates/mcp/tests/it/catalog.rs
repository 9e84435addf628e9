//! What a run is given of a server's tools.

use crate::fixtures::{TestServers, definitions, find_tool};
use model::definition::{Agent, ApprovalPolicy, Definitions, McpServer, Tool, ToolExecutor, ToolSpec};
use model::error::ErrorInfo;
use model::ports::{DefinitionResolver as _, ResolveRequest};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) async fn resolve(servers: &TestServers, definitions: Definitions) -> Result<Arc<Definitions>, ErrorInfo> {
    let request = ResolveRequest {
        user: "alice".into(),
        thread: "thr_1".into(),
        run: "task_R".into(),
        credentials: Vec::new(),
        agent: "helper".to_owned(),
        definitions: Arc::new(definitions),
    };
    servers.tools.resolve_definitions(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allow_deny_and_approval_hold_for_every_tool() {
    let servers = TestServers::new();
    let server = McpServer {
        allow: Some(vec!["echo".to_owned(), "f*".to_owned()]),
        deny: vec!["flood".to_owned()],
        approval: [("fail".to_owned(), ApprovalPolicy::Never)].into(),
        timeout_ms: Some(1234),
        output_bytes_max: Some(5678),
        ..servers.server("friendly")
    };
    let run = servers.resolve(server).await.unwrap();
    assert_eq!(run.agents["helper"].tools, ["s__echo", "s__fail", "s__fork"]);
    assert_eq!(find_tool(&run, "echo").approval, ApprovalPolicy::Always, "unless the operator says otherwise");
    assert_eq!(find_tool(&run, "fail").approval, ApprovalPolicy::Never);
    let echo = find_tool(&run, "echo");
    assert_eq!((echo.timeout_ms, echo.output_bytes_max, echo.idempotent), (Some(1234), Some(5678), false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_has_the_tools_that_it_names() {
    let servers = TestServers::new();
    let named = definitions(servers.server("friendly"), &["lookup", "mcp:s/echo", "mcp:s/fail"]);
    let run = resolve(&servers, named).await.unwrap();
    assert_eq!(run.agents["helper"].tools, ["lookup", "s__echo", "s__fail"]);
    assert_eq!(run.tools.keys().collect::<Vec<_>>(), ["s__echo", "s__fail"]);
    assert!(run.mcp.is_empty());
    let missing = definitions(servers.server("friendly"), &["mcp:s/nothing"]);
    let error = resolve(&servers, missing).await.unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("mcp_unavailable", "A tool of the MCP server `s` is missing: `nothing` is not offered.")
    );
    let optional = McpServer { required: false, ..servers.server("friendly") };
    let run = resolve(&servers, definitions(optional, &["mcp:s/nothing", "mcp:s/echo"])).await.unwrap();
    assert_eq!(run.agents["helper"].tools, ["s__echo"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_lists_give_equal_definitions_that_can_be_stored() {
    let servers = TestServers::new();
    let (first, second) = (servers.run_with("friendly").await, servers.run_with("friendly").await);
    assert_eq!((first.digest.len(), &first), (64, &second));
    let stored: Definitions = serde_json::from_str(&serde_json::to_string(&*first).unwrap()).unwrap();
    assert_eq!(Definitions { digest: first.digest.clone(), ..stored }, *first);
    let other =
        servers.resolve(McpServer { deny: vec!["echo".to_owned()], ..servers.server("friendly") }).await.unwrap();
    assert_ne!(other.digest, first.digest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_required_may_be_missing() {
    let servers = TestServers::new();
    let server = McpServer { required: false, ..servers.server("exit") };
    let run = resolve(&servers, definitions(server, &["lookup", "mcp:s"])).await.unwrap();
    assert_eq!((run.agents["helper"].tools.as_slice(), run.tools.len()), (&["lookup".to_owned()][..], 0));
    let list = &run.mcp_lists["s"];
    let error = Some("The MCP server `s` exited with status 2: no configuration");
    assert_eq!((list.error.as_deref(), &list.digest, list.agents.len()), (error, &None, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_says_which_tools_are_left_out() {
    let servers = TestServers::new();
    let run = servers.run_with("schemas").await;
    let list = &run.mcp_lists["s"];
    assert_eq!(list.digest, Some(model::definition::mcp_list_digest(&run.mcp_list_action("s"))));
    let error = list.error.as_deref().unwrap();
    assert!(error.starts_with("Tools are left out: "), "{error}");
    for words in ["`echo` is listed twice", "`text` has an input schema", "one of the list is not a tool"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(servers.run_with("schemas").await.digest, run.digest);
    let friendly = TestServers::new();
    assert_eq!(friendly.run_with("friendly").await.mcp_lists["s"].error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_the_operator_are_not_taken() {
    let servers = TestServers::new();
    let mut named = definitions(servers.server("friendly"), &["mcp:s/echo", "mcp:s/fail", "mcp:s/hang"]);
    let spec =
        ToolSpec { name: "s__echo".to_owned(), description: "Mine.".to_owned(), parameters: json!({"type": "object"}) };
    named.tools.insert("s__echo".to_owned(), Tool::new(spec, ToolExecutor::Client));
    named.agents.insert("s__fail".to_owned(), Agent { name: "s__fail".to_owned(), ..Agent::default() });
    let run = resolve(&servers, named).await.unwrap();
    assert_eq!(run.agents["helper"].tools, ["s__hang"]);
    assert_eq!(run.tools["s__echo"].spec.description, "Mine.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_the_run_cannot_come_to_get_no_tools() {
    let servers = TestServers::new();
    let mut named = definitions(servers.server("friendly"), &["mcp:s/echo"]);
    let other = Agent { name: "other".to_owned(), tools: vec!["mcp:s".to_owned()], ..Agent::default() };
    named.agents.insert("other".to_owned(), other);
    let run = resolve(&servers, named).await.unwrap();
    assert_eq!((run.tools.len(), run.agents["other"].tools.len()), (1, 0));
}

/// Each different list is stored with its runs, and kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_always_changes_its_tools_is_refused_after_a_while() {
    let servers = TestServers::new();
    let mut digests = BTreeSet::new();
    let error = loop {
        match servers.resolve(servers.server("restless")).await {
            Ok(run) => digests.insert(run.digest.clone()),
            Err(error) => break error,
        };
    };
    assert_eq!((error.code.as_str(), digests.len()), ("mcp_unavailable", 60));
    assert!(error.message.contains("changes its tools more than 60 times an hour"), "{}", error.message);
}
