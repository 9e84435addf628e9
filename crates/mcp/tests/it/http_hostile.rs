//! Servers with a URL that hang, flood, lie, redirect and break off: a clear error for that call, and no other is harmed.

use crate::fixtures::{call_request, error, text};
use crate::http_server::HttpTest;
use model::definition::{Definitions, McpTransport};
use model::tool::ToolEvent;

/// Calls a tool that misbehaves and expects an error with these words.
async fn check_call(test: &HttpTest, run: &Definitions, tool: &str, code: &str, words: &str) {
    let output = test.servers.call(run, tool, "{}").await;
    let (found, message) = error(&output);
    assert_eq!(found, code, "{tool}: {message}");
    assert!(message.contains(words), "{tool}: {message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_calls_of_the_same_session_do_not_notice() {
    let (test, run) = HttpTest::run("sessions").await;
    for tool in ["flood", "huge", "die"] {
        let slow = test.servers.events_of(call_request(&run, "slow", "{}"));
        let (broken, slow) = tokio::join!(test.servers.call(&run, tool, "{}"), slow);
        assert!(broken.error.is_some(), "{tool}");
        let [ToolEvent::End(slow)] = slow.as_slice() else { panic!("{slow:?}") };
        assert_eq!(text(slow), "at last", "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_misbehaviour_in_a_call_is_a_clear_error_of_that_call() {
    for mode in ["sessions", "stateless"] {
        let (test, run) = HttpTest::run(mode).await;
        let lost = "The call may have taken effect.";
        for (tool, code, words) in [
            ("html", "mcp_protocol_error", "answered with `text/html` instead of JSON or events."),
            ("html500", "mcp_unavailable", "answered with status 500."),
            ("huge", "mcp_protocol_error", "sent a message of more than 4194304 bytes."),
            ("flood", "mcp_flood", "sent too many messages."),
            ("unended", "mcp_protocol_error", "sent a message of more than 4194304 bytes."),
            ("redirect", "mcp_protocol_error", "answered with status 307: redirects are not followed."),
            ("redirect_metadata", "mcp_protocol_error", "answered with status 302: redirects are not followed."),
            ("unauthorized", "mcp_unauthorized", "answered with status 401 and requires a credential"),
            ("forbidden", "mcp_unauthorized", "answered with status 403"),
            ("die", "mcp_unavailable", "broke off its answer."),
            ("die", "mcp_unavailable", lost),
            ("die_stream", "mcp_unavailable", "broke off its answer."),
            ("plain", "mcp_protocol_error", "answered with `text/plain` instead of JSON or events."),
            ("nonsense", "mcp_protocol_error", "sent an event that is not a message."),
            ("other_id", "mcp_protocol_error", "answered another request than the one it was sent."),
            ("accepted", "mcp_protocol_error", "gave no answer to a request."),
            ("empty", "mcp_protocol_error", "sent something that is not a message."),
        ] {
            check_call(&test, &run, tool, code, words).await;
        }
        let elsewhere = test.host.notes("requests").iter().filter(|request| request["path"] != "/mcp").count();
        assert_eq!(elsewhere, 0, "{mode}: no redirect was followed");
        assert_eq!(test.host.requests("initialize").len(), usize::from(mode == "sessions"), "the connection stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_ends_costs_the_time_limit_of_the_call() {
    let (test, run) = HttpTest::run("sessions").await;
    for tool in ["hang", "comments", "drip"] {
        let output = test.servers.call_within(300, &run, tool).await;
        assert_eq!(
            error(&output),
            ("tool_timeout", "The tool did not finish within 300 ms and was stopped."),
            "{tool}"
        );
    }
    assert_eq!(text(&test.servers.call(&run, "echo", r#"{"text":"on"}"#).await), "on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_spoken_to_says_why() {
    for (mode, code, words) in [
        ("html", "mcp_protocol_error", "answered with `text/html` instead of JSON or events."),
        ("html500", "mcp_unavailable", "answered with status 500."),
        ("hang", "mcp_unavailable", "was not ready within 600 ms"),
        ("redirect", "mcp_protocol_error", "redirects are not followed."),
        ("redirect_metadata", "mcp_protocol_error", "redirects are not followed."),
        ("unauthorized", "mcp_unauthorized", "answered with status 401 and requires a credential"),
        ("forbidden", "mcp_unauthorized", "answered with status 403"),
        ("huge_list", "mcp_protocol_error", "more than 4194304 bytes"),
    ] {
        let test = HttpTest::start(mode);
        let mut server = test.server();
        if mode == "hang" {
            server.program.start_timeout_ms = 600;
        }
        let error = test.servers.resolve(server).await.expect_err(mode);
        assert_eq!(error.code, code, "{mode}: {}", error.message);
        assert!(error.message.contains(words), "{mode}: {}", error.message);
        let count = test.host.notes("requests").len();
        // While a slow machine reads the huge list, the listener of the session tries again and again, at growing intervals.
        assert!(count <= if code == "mcp_unauthorized" { 1 } else { 40 }, "{mode}: {count} requests, no loop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_named_without_its_url() {
    let test = HttpTest::start("sessions");
    let mut server = test.server();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/mcp?key=abcdef");
    let McpTransport::Endpoint(endpoint) = &mut server.program.transport else { panic!() };
    endpoint.url = url;
    let error = test.servers.resolve(server).await.expect_err("nobody listens");
    assert_eq!(error.code, "mcp_unavailable");
    assert!(
        error.message.starts_with("The MCP server `s` does not answer: cannot reach 127.0.0.1:"),
        "{}",
        error.message
    );
    assert!(!error.message.contains("abcdef"), "{}", error.message);
}
