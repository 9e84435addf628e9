//! Who shares a process, how many there are, when one is closed and when it is started again.

use crate::fixtures::{PATIENCE, TestServers, error, is_alive, text, wait_gone, wait_until};
use mcp::McpLimits;
use model::definition::{McpScope, McpServer};
use std::time::{Duration, Instant};

fn with_scope(servers: &TestServers, scope: McpScope) -> McpServer {
    let mut server = servers.server("friendly");
    server.program.scope = scope;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scope_says_who_shares_a_process() {
    for (scope, processes) in [(McpScope::User, 2), (McpScope::Thread, 3), (McpScope::Shared, 1)] {
        let servers = TestServers::new();
        for (user, thread) in [("alice", "thr_1"), ("alice", "thr_2"), ("bob", "thr_3"), ("alice", "thr_1")] {
            servers.resolve_as(user, thread, with_scope(&servers, scope)).await.unwrap();
        }
        assert_eq!(servers.pids().len(), processes, "{scope:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_start_together_start_one_process() {
    let servers = TestServers::new();
    let starts = (0..8).map(|_| servers.resolve(servers.server("friendly")));
    for run in futures_util::future::join_all(starts).await {
        assert_eq!(run.unwrap().tools.len(), 20);
    }
    assert_eq!(servers.pids().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_process_is_closed_and_started_again_when_it_is_needed() {
    let servers = TestServers::with_limits(McpLimits { idle: Duration::from_millis(300), ..McpLimits::default() });
    let run = servers.run_with("friendly").await;
    wait_gone(&servers.pids()).await;
    assert_eq!(text(&servers.call(&run, "echo", r#"{"text":"back"}"#).await), "back");
    assert_eq!(servers.pids().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_a_call_is_not_idle() {
    let servers = TestServers::with_limits(McpLimits { idle: Duration::from_millis(100), ..McpLimits::default() });
    let run = servers.run_with("friendly").await;
    let output = servers.call_within(800, &run, "hang").await;
    assert_eq!(error(&output).0, "tool_timeout", "its own time limit ended it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_was_unused_for_longest_makes_room() {
    let servers = TestServers::with_limits(McpLimits { processes_per_user_max: 2, ..McpLimits::default() });
    for thread in ["thr_1", "thr_2", "thr_3"] {
        servers.resolve_as("alice", thread, with_scope(&servers, McpScope::Thread)).await.unwrap();
    }
    let pids = servers.pids();
    wait_gone(&pids[..1]).await;
    assert_eq!(pids[1..].iter().map(|pid| is_alive(*pid)).collect::<Vec<_>>(), [true, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_in_use_makes_no_room() {
    let servers = TestServers::with_limits(McpLimits { processes_max: 1, ..McpLimits::default() });
    let run = servers.run_with("friendly").await;
    let hanging = servers.call_within(2000, &run, "hang");
    let second = async {
        wait_until("the call arrives", || servers.lines("calls").len() == 1).await;
        servers.resolve_as("bob", "thr_2", servers.server("friendly")).await
    };
    let (_, second) = tokio::join!(hanging, second);
    let refused = second.expect_err("there is no room");
    assert_eq!(refused.code, "mcp_unavailable");
    assert!(refused.message.contains("1 MCP servers are in use already"), "{}", refused.message);
    assert_eq!(servers.pids().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_fails_is_not_started_again_at_once() {
    let backoff = Duration::from_secs(600);
    let servers =
        TestServers::with_limits(McpLimits { backoff_min: backoff, backoff_max: backoff, ..McpLimits::default() });
    let first = servers.resolve(servers.server("exit")).await.expect_err("it exits");
    let started = servers.pids().len();
    let at = Instant::now();
    let second = servers.resolve(servers.server("exit")).await.expect_err("it is not tried");
    assert!(at.elapsed() < backoff);
    assert_eq!((second, servers.pids().len()), (first, started), "the same error, and no other process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_failed_is_tried_again_after_a_while() {
    let servers = TestServers::new();
    let first = servers.resolve(servers.server("exit")).await;
    assert!(first.is_err());
    let started = servers.pids().len();
    let again = async {
        while servers.pids().len() == started {
            assert!(servers.resolve(servers.server("exit")).await.is_err());
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("it is started again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_limit_of_a_process_wait() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let hanging = futures_util::future::join_all((0..32).map(|_| servers.call(&run, "hang", "{}")));
    let one_more = async {
        wait_until("32 calls arrive", || servers.lines("calls").len() == 32).await;
        servers.call_within(300, &run, "echo").await
    };
    let output = tokio::select! {
        output = one_more => output,
        _ = hanging => panic!("they hang"),
    };
    assert_eq!(error(&output).0, "tool_timeout");
    assert_eq!(servers.lines("calls").len(), 32, "it was not sent");
}
