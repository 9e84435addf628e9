//! What happens when a server describes a tool in another way than its user knows, or the operator has pinned.

use crate::fixtures::{TestServers, find_tool, text};
use mcp::McpTools;
use memory_store::MemoryStore;
use model::definition::{ApprovalPolicy, Definitions, McpPin, McpServer, ToolExecutor};
use std::sync::Arc;

fn with_store(mut servers: TestServers) -> TestServers {
    servers.tools = McpTools::with_pins(servers.tools.clone(), Arc::new(MemoryStore::new()));
    servers
}

/// Whether the run has the tool as one that has changed, and when a person must approve it.
fn consent(run: &Definitions, name: &str) -> (bool, ApprovalPolicy) {
    let tool = find_tool(run, name);
    let ToolExecutor::Mcp(of_server) = &tool.executor else { panic!("it is of a server") };
    (of_server.is_changed, tool.approval.clone())
}

const KNOWN: (bool, ApprovalPolicy) = (false, ApprovalPolicy::Never);
const CHANGED: (bool, ApprovalPolicy) = (true, ApprovalPolicy::Always);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_changed_since_its_user_knew_it_needs_a_new_consent() {
    let servers = with_store(TestServers::new());
    let first = servers.run_with("changing").await;
    assert_eq!((consent(&first, "echo"), consent(&first, "fail")), (KNOWN, KNOWN));
    // Its next process describes the tool in another way.
    servers.call(&first, "die", "{}").await;
    let second = servers.run_with("changing").await;
    assert_eq!((consent(&second, "echo"), consent(&second, "fail")), (CHANGED, KNOWN));
    let third = servers.run_with("changing").await;
    assert_eq!(consent(&third, "echo"), CHANGED, "to see it is not to approve it");
    let of_bob = servers.resolve_as("bob", "thr_2", servers.server("changing")).await.unwrap();
    assert_eq!(consent(&of_bob, "echo"), KNOWN, "each user knows what that user has seen");
    // A call runs only if a person has approved it.
    assert_eq!(text(&servers.call(&third, "echo", r#"{"text":"yes"}"#).await), "yes");
    let fourth = servers.run_with("changing").await;
    assert_eq!(consent(&fourth, "echo"), KNOWN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_may_not_want_to_ask() {
    let servers = with_store(TestServers::new());
    let off = || McpServer { pin: McpPin::Off, ..servers.server("changing") };
    let first = servers.resolve(off()).await.unwrap();
    servers.call(&first, "die", "{}").await;
    let second = servers.resolve(off()).await.unwrap();
    assert_eq!(consent(&second, "echo"), KNOWN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_with_another_hash_than_the_config_pins_is_not_offered() {
    let servers = TestServers::new();
    let listed = servers.tools.inspect_server("s", &servers.server("friendly")).await.unwrap();
    let echo = listed.iter().find(|tool| tool.name == "echo").unwrap();
    assert!(echo.hash.starts_with("sha256:") && echo.hash.len() == 71, "{}", echo.hash);
    assert_eq!((echo.description.as_str(), echo.is_allowed), ("Repeats the text.", true));
    let other = format!("sha256:{}", "0".repeat(64));
    let pins = [("echo".to_owned(), echo.hash.clone()), ("fail".to_owned(), other.clone())];
    let server = || McpServer { pin: McpPin::Tools(pins.clone().into()), ..servers.server("friendly") };
    let run = servers.resolve(server()).await.unwrap();
    assert!(run.tools.contains_key("s__echo") && run.tools.contains_key("s__slow"));
    assert!(!run.tools.contains_key("s__fail"));
    let error = run.mcp_lists["s"].error.clone().unwrap();
    assert!(error.starts_with("Tools are left out: `fail` has changed: its hash is sha256:"), "{error}");
    assert!(error.contains(&format!("and the config pins {other}")), "{error}");
    let named = crate::fixtures::definitions(server(), &["mcp:s/fail"]);
    let refused = crate::catalog::resolve(&servers, named).await.unwrap_err();
    assert!(refused.message.contains("`fail` has changed"), "a required tool is missing: {refused:?}");
}
