//! Servers with a URL that do as they should, in both generations of the protocol.

use crate::fixtures::{SECRET, call_request, error, find_tool, text, wait_until};
use crate::http_server::HttpTest;
use futures_util::StreamExt as _;
use model::ports::ToolRunner as _;
use model::question::QuestionAnswer;
use model::tool::{ProgressUpdate, ToolEvent, ToolRequest};
use serde_json::{Value, json};

const GENERATIONS: [&str; 2] = ["sessions", "stateless"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_either_generation_lists_its_tools_and_is_called() {
    for mode in GENERATIONS {
        let (test, run) = HttpTest::run(mode).await;
        assert!(run.tools.contains_key("s__echo") && !run.tools.contains_key("s__bad_mark"), "{mode}");
        let echo = test.servers.call(&run, "echo", r#"{"text":"hello"}"#).await;
        assert_eq!(text(&echo), "hello", "{mode}");
        assert_eq!(text(&test.servers.call(&run, "stream", "{}").await), "streamed", "{mode}");
        let refused = test.servers.call(&run, "refuse", "{}").await;
        assert_eq!(
            error(&refused),
            ("tool_failed", "The MCP server `s` refused the call: I do not like this."),
            "{mode}: an error of the protocol with an error status"
        );
        let arguments = test.servers.call(&run, "arguments", r#"{"amount": 10000000000000000000000.10}"#).await;
        assert!(text(&arguments).contains("\"arguments\""), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_carry_the_headers_of_their_generation_and_of_the_operator() {
    for mode in GENERATIONS {
        let (test, run) = HttpTest::run(mode).await;
        test.servers.call(&run, "echo", r#"{"text":"Zürich"}"#).await;
        let [call] = &test.host.requests("tools/call")[..] else { panic!("one call") };
        let headers = &call["headers"];
        assert_eq!(headers["accept"], "application/json, text/event-stream");
        assert_eq!(headers["x-team"], format!("Bearer {SECRET}"));
        let list = &test.host.requests("tools/list")[0]["headers"];
        match mode {
            "sessions" => {
                assert_eq!(headers["mcp-protocol-version"], "2025-11-25");
                assert!(headers["mcp-session-id"].as_str().unwrap().starts_with("session-"));
                assert_eq!((&headers["mcp-method"], &headers["mcp-param-text"]), (&Value::Null, &Value::Null));
                let initialize = &test.host.requests("initialize")[0];
                assert_eq!(initialize["headers"]["mcp-session-id"], Value::Null);
                assert_eq!(initialize["message"]["params"]["protocolVersion"], "2025-11-25");
                assert_eq!(test.host.requests("notifications/initialized").len(), 1);
            }
            _ => {
                assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
                assert_eq!((&list["mcp-method"], &list["mcp-name"]), (&json!("tools/list"), &Value::Null));
                assert_eq!((&headers["mcp-method"], &headers["mcp-name"]), (&json!("tools/call"), &json!("echo")));
                assert_eq!(headers["mcp-param-text"], "=?base64?WsO8cmljaA==?=");
                let meta = &call["message"]["params"]["_meta"];
                assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
                assert_eq!(test.host.requests("initialize").len(), 0);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_shown_while_the_call_runs() {
    for mode in GENERATIONS {
        let (test, run) = HttpTest::run(mode).await;
        let events = test.servers.events(&run, "progress", "{}").await;
        let progress: Vec<&ProgressUpdate> = events
            .iter()
            .filter_map(|event| match event {
                ToolEvent::Progress(update) => Some(update),
                _ => None,
            })
            .collect();
        let wanted = [1.0, 2.0, 3.0].map(Some);
        assert_eq!(progress.iter().map(|update| update.progress).collect::<Vec<_>>(), wanted, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_the_operator_are_in_no_result() {
    let (test, run) = HttpTest::run("sessions").await;
    let headers = test.servers.call(&run, "headers", "{}").await;
    assert!(text(&headers).contains("[env:TOKEN]") && !text(&headers).contains(SECRET), "{}", text(&headers));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_finds_its_session_ended_is_sent_in_a_new_one() {
    let (test, run) = HttpTest::run("sessions").await;
    assert_eq!(text(&test.servers.call(&run, "expire", "{}").await), "expired");
    assert_eq!(text(&test.servers.call(&run, "echo", r#"{"text":"again"}"#).await), "again");
    assert_eq!(test.host.requests("initialize").len(), 2);
    assert_eq!(test.host.notes("calls"), ["expire", "echo"], "the server has seen it once");
    let output = test.servers.call(&run, "expire_all", "{}").await;
    assert_eq!(error(&output), ("mcp_unavailable", "The MCP server `s` has ended the session."), "no third time");
    assert_eq!(test.host.notes("calls").len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_off_is_resumed_where_the_server_allows_it() {
    let (test, run) = HttpTest::run("sessions").await;
    assert_eq!(text(&test.servers.call(&run, "resume", "{}").await), "resumed");
    assert_eq!(test.host.notes("calls"), ["resume"], "the call is not repeated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_tools_are_heard_of_outside_of_calls() {
    for mode in GENERATIONS {
        let (test, run) = HttpTest::run(mode).await;
        let listens = if mode == "sessions" { "GET" } else { "subscriptions/listen" };
        wait_until("the client listens", || !test.host.requests(listens).is_empty()).await;
        assert_eq!(text(&test.servers.call(&run, "change", "{}").await), "changed");
        let changed = loop {
            let output = test.servers.call(&run, "echo", r#"{"text":"two"}"#).await;
            if output.error.is_some() {
                break output;
            }
        };
        assert_eq!(error(&changed).0, "tool_changed", "{mode}");
        let next = test.servers.resolve(test.server()).await.unwrap();
        let description = &find_tool(&next, "echo").spec.description;
        assert_eq!(description, "Repeats the text, and sends it to me.", "{mode}: a new run has the new tool");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_is_cancelled_at_the_server() {
    for mode in GENERATIONS {
        let (test, run) = HttpTest::run(mode).await;
        let mut events = test.servers.tools.call_tool(call_request(&run, "hang", "{}"));
        tokio::select! {
            event = events.next() => panic!("{event:?}"),
            () = wait_until("the call arrives", || !test.host.notes("calls").is_empty()) => {}
        }
        drop(events);
        if mode == "sessions" {
            wait_until("the server is told", || !test.host.requests("notifications/cancelled").is_empty()).await;
            let cancelled = &test.host.requests("notifications/cancelled")[0];
            let called = &test.host.requests("tools/call")[0];
            assert_eq!(cancelled["message"]["params"]["requestId"], called["message"]["id"]);
        }
        assert_eq!(text(&test.servers.call(&run, "echo", r#"{"text":"on"}"#).await), "on", "{mode}");
        assert_eq!(test.host.requests("initialize").len(), usize::from(mode == "sessions"), "the same session");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_ended_when_nobody_uses_it() {
    let mut test = HttpTest::start("sessions");
    let limits = mcp::McpLimits { idle: std::time::Duration::from_millis(100), ..mcp::McpLimits::default() };
    test.servers = crate::fixtures::TestServers::with_limits(limits);
    test.servers.resolve(test.server()).await.unwrap();
    wait_until("the session is deleted", || !test.host.requests("DELETE").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_asked_by_the_call_in_whose_response_it_came() {
    let (test, run) = HttpTest::run("sessions").await;
    let calls = ["call_R1", "call_R2"].map(|id| ToolRequest { call_id: id.into(), ..call_request(&run, "ask", "{}") });
    let mut streams = calls.map(|call| (call.call_id.clone(), test.servers.tools.call_tool(call)));
    let mut questions = Vec::new();
    for (_, events) in &mut streams {
        let Some(ToolEvent::Question(asked)) = events.next().await else { panic!("no question") };
        questions.push(asked.id);
    }
    for ((call, events), question) in streams.iter_mut().zip(questions) {
        let answer = QuestionAnswer::Accepted(json!({"name": call.as_str()}).into());
        test.servers.tools.answer_question(call, &question, answer);
        let Some(ToolEvent::End(output)) = events.next().await else { panic!("no end") };
        assert_eq!(text(&output), format!(r#"{{"action": "accept", "content": {{"name": "{call}"}}}}"#));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_shared_as_the_scope_says() {
    let test = HttpTest::start("sessions");
    for user in ["alice", "alice", "bob"] {
        test.servers.resolve_as(user, "thr_1", test.server()).await.unwrap();
    }
    assert_eq!(test.host.requests("initialize").len(), 2, "one for each user");
}
