//! Servers that hang, flood, die, lie, fork and change: a clear error, no process left, other servers unaffected.

use crate::fixtures::{TestServers, error, find_tool, text, wait_gone, wait_until};
use mcp::McpLimits;
use model::definition::{McpServer, McpTransport, OnCrash};
use model::tool::ToolEvent;
use std::time::Duration;

/// Calls a tool that breaks its connection, and expects an error with these words, and another server after it.
async fn check_broken_call(tool: &str, code: &str, words: &str) {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let output = servers.call(&run, tool, "{}").await;
    let (found, message) = error(&output);
    assert_eq!(found, code, "{tool}: {message}");
    assert!(message.contains(words), "{tool}: {message}");
    let pids = servers.pids();
    wait_gone(&pids).await;
    assert_eq!(text(&servers.call(&run, "echo", r#"{"text":"again"}"#).await), "again", "{tool}: a new process");
    assert_eq!(servers.pids().len(), pids.len() + 1, "{tool}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_in_a_call_is_reported_and_started_again() {
    check_broken_call("die", "mcp_unavailable", "exited with status 3: the disk is on fire.").await;
}

/// Whether the call is made again is not for the connection to decide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_lost_with_a_server_that_dies_and_failed_with_one_that_is_stopped() {
    let servers = TestServers::new();
    let server = McpServer { idempotent: vec!["d*".to_owned()], on_crash: OnCrash::Ask, ..servers.server("friendly") };
    let run = servers.resolve(server).await.unwrap();
    let rules = |name: &str| (find_tool(&run, name).idempotent, find_tool(&run, name).on_crash);
    assert_eq!((rules("die"), rules("flood")), ((true, OnCrash::Ask), (false, OnCrash::Ask)));
    let died = servers.events(&run, "die", "{}").await;
    assert!(matches!(died.as_slice(), [ToolEvent::Lost(error)] if error.code == "mcp_unavailable"), "{died:?}");
    let flooded = servers.events(&run, "flood", "{}").await;
    let [ToolEvent::End(output)] = flooded.as_slice() else { panic!("{flooded:?}") };
    assert!(error(output).1.ends_with("The call may have taken effect."), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_floods_is_stopped() {
    check_broken_call("flood", "mcp_flood", "sent too many messages").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_without_an_end_stops_the_server() {
    check_broken_call("endless", "mcp_protocol_error", "more than 4194304 bytes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_hundred_megabytes_stops_the_server() {
    check_broken_call("huge", "mcp_protocol_error", "more than 4194304 bytes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_no_messages_stop_the_server() {
    check_broken_call("nonsense", "mcp_protocol_error", "64 lines that are not messages").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_the_time_limit_of_its_calls_and_is_replaced() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    for _ in 0..3 {
        let output = servers.call_within(200, &run, "hang").await;
        assert_eq!(error(&output), ("tool_timeout", "The tool did not finish within 200 ms and was stopped."));
    }
    wait_gone(&servers.pids()).await;
    assert_eq!(text(&servers.call(&run, "echo", r#"{"text":"new"}"#).await), "new");
    assert_eq!(servers.pids().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noise_on_stderr_is_read_and_forgotten() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let output = servers.call_within(500, &run, "chatter").await;
    assert_eq!(error(&output).0, "tool_timeout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_server_end_with_it() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    assert_eq!(text(&servers.call(&run, "fork", "{}").await), "forked");
    assert_eq!(servers.pids().len(), 2);
    assert_eq!(error(&servers.call(&run, "die", "{}").await).0, "mcp_unavailable");
    wait_gone(&servers.pids()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ignores_sigterm_is_killed() {
    let limits = McpLimits { idle: Duration::from_millis(200), ..McpLimits::default() };
    let servers = TestServers::with_limits(limits);
    servers.run_with("stubborn").await;
    wait_gone(&servers.pids()).await;
}

async fn resolve_error(servers: &TestServers, server: McpServer) -> String {
    let error = servers.resolve(server).await.expect_err("it cannot start");
    assert_eq!(error.code, "mcp_unavailable");
    error.message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_start_says_why_and_leaves_nothing() {
    let short = |servers: &TestServers, mode: &str| {
        let mut server = servers.server(mode);
        server.program.start_timeout_ms = 1500;
        server
    };
    let servers = TestServers::new();
    let exits = resolve_error(&servers, servers.server("exit")).await;
    assert_eq!(exits, "The MCP server `s` exited with status 2: no configuration");
    for mode in ["mute", "no_list"] {
        let servers = TestServers::new();
        let late = resolve_error(&servers, short(&servers, mode)).await;
        assert_eq!(late, "The MCP server `s` was not ready within 1500 ms and was stopped.", "{mode}");
        wait_until("it was started", || !servers.pids().is_empty()).await;
        wait_gone(&servers.pids()).await;
    }
    let servers = TestServers::new();
    let mut missing = servers.server("friendly");
    let McpTransport::Command(command) = &mut missing.program.transport else { panic!("it is a program") };
    command.command[0] = "/no/such/program".to_owned();
    let why = resolve_error(&servers, missing).await;
    assert!(why.starts_with("The MCP server `s` cannot be started: cannot start `program`"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tools_and_broken_schemas_are_cut_to_what_can_be_used() {
    let servers = TestServers::new();
    assert_eq!(servers.run_with("many").await.tools.len(), 1024);
    let servers = TestServers::new();
    let run = servers.run_with("schemas").await;
    assert_eq!(run.tools.len(), 20, "{:?}", run.tools.keys());
    assert_eq!(find_tool(&run, "echo").spec.description, "Repeats the text.", "the first of two");
    let servers = TestServers::new();
    let run = servers.run_with("endless_pages").await;
    assert_eq!(run.tools.len(), 20, "pages are counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_changed_since_the_run_started_is_not_called() {
    let servers = TestServers::new();
    let run = servers.run_with("changing").await;
    assert_eq!(text(&servers.call(&run, "echo", r#"{"text":"one"}"#).await), "one");
    wait_until("the server says that its tools changed", || servers.lines("calls").len() == 1).await;
    // The notification follows the first result at once; the list is fetched again when it has arrived.
    let changed = loop {
        let output = servers.call(&run, "echo", r#"{"text":"two"}"#).await;
        if output.error.is_some() {
            break output;
        }
    };
    let calls = servers.lines("calls").len();
    assert_eq!(error(&changed).0, "tool_changed");
    assert_eq!(text(&servers.call(&run, "structured", "{}").await), "{\"a\":1}", "the other tools are what they were");
    assert_eq!(servers.lines("calls").len(), calls + 1);
    let next = servers.run_with("changing").await;
    assert_eq!(text(&servers.call(&next, "echo", r#"{"text":"three"}"#).await), "three", "a new run has the new tool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_another_process_of_the_server_has_no_more_is_not_called() {
    let servers = TestServers::new();
    let run = servers.run_with("gone").await;
    assert_eq!(error(&servers.call(&run, "die", "{}").await).0, "mcp_unavailable");
    let output = servers.call(&run, "echo", r#"{"text":"one"}"#).await;
    let (code, message) = error(&output);
    assert_eq!(code, "tool_changed");
    assert!(message.contains("has this tool no more"), "{message}");
    assert_eq!(servers.lines("calls"), ["die"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_users_do_not_notice() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let other = servers.resolve_as("bob", "thr_2", servers.server("friendly")).await.unwrap();
    assert_eq!(servers.pids().len(), 2, "each has a process");
    let slow = crate::fixtures::call_request(&other, "slow", "{}");
    let slow = model::tool::ToolRequest { user: "bob".into(), thread: "thr_2".into(), ..slow };
    let (broken, slow) = tokio::join!(servers.call(&run, "flood", "{}"), servers.events_of(slow));
    assert_eq!(error(&broken).0, "mcp_flood");
    let [ToolEvent::End(slow)] = slow.as_slice() else { panic!("{slow:?}") };
    assert_eq!(text(slow), "at last");
}
