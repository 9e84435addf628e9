//! Calls of a friendly server, in both generations of the protocol.

use crate::fixtures::{TestServers, call_request, error, find_tool, is_alive, text, wait_gone, wait_until};
use futures_util::StreamExt as _;
use model::content::ContentPart;
use model::ports::ToolRunner as _;
use model::tool::{ProgressUpdate, ToolEvent, ToolRequest};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_either_generation_lists_its_tools_and_is_called() {
    for mode in ["friendly", "modern", "deaf", "pages"] {
        let servers = TestServers::new();
        let run = servers.run_with(mode).await;
        assert_eq!(run.agents["helper"].tools.len(), 20, "{mode}");
        let echo = find_tool(&run, "echo");
        assert_eq!(echo.spec.description, "Repeats the text.", "{mode}");
        assert_eq!(echo.spec.parameters["required"], json!(["text"]), "{mode}");
        assert_eq!(text(&servers.call(&run, "echo", r#"{"text":"hello"}"#).await), "hello", "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_says_who_it_is_in_each_generation() {
    let old = TestServers::new();
    old.run_with("friendly").await;
    let initialize: Value = serde_json::from_str(&old.lines("initialize")[0]).unwrap();
    assert_eq!(initialize["protocolVersion"], "2025-11-25");
    assert_eq!(initialize["clientInfo"]["name"], "headwater");
    assert_eq!(initialize["capabilities"], json!({"elicitation": {"form": {}}}));
    assert!(old.lines("notifications").contains(&"notifications/initialized".to_owned()));
    let new = TestServers::new();
    let run = new.run_with("modern").await;
    new.call(&run, "echo", r#"{"text":"hello"}"#).await;
    let meta: Value = serde_json::from_str(&new.lines("meta")[0]).unwrap();
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!((new.lines("initialize").len(), new.pids().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ignores_the_question_is_started_again_only_once() {
    let servers = TestServers::new();
    servers.run_with("deaf").await;
    assert_eq!(servers.pids().len(), 2, "the second one was initialized at once");
    wait_gone(&servers.pids()[..1]).await;
    let other = servers.resolve_as("bob", "thr_2", servers.server("deaf")).await.unwrap();
    assert_eq!((other.tools.len(), servers.pids().len()), (20, 3), "what it understands is remembered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_images_and_structured_content_are_results() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    assert_eq!(error(&servers.call(&run, "fail", "{}").await), ("tool_failed", "It does not work."));
    let refused = servers.call(&run, "refuse", "{}").await;
    assert_eq!(error(&refused), ("tool_failed", "The MCP server `s` refused the call: I do not like this."));
    assert_eq!(error(&servers.call(&run, "wrong", "{}").await).0, "mcp_protocol_error");
    assert_eq!(text(&servers.call(&run, "structured", "{}").await), "{\"a\":1}");
    let image = servers.call(&run, "image", "{}").await;
    let [ContentPart::ImageUrl { image_url, .. }] = image.message_content.as_slice() else { panic!("{image:?}") };
    assert!(image_url.url.starts_with("data:image/png;base64,iVBOR"), "{image_url:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_shown_while_the_call_runs() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let events = servers.events(&run, "progress", "{}").await;
    let update = |step: f64| {
        let (message, progress, total) = (Some(format!("step {step}")), Some(step), Some(3.0));
        ToolEvent::Progress(ProgressUpdate { message, progress, total })
    };
    assert_eq!(events[..events.len() - 1], [update(1.0), update(2.0), update(3.0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_arrive_digit_by_digit() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let output = servers.call(&run, "arguments", "{\"n\": 12345678901234567890123}").await;
    assert!(text(&output).contains("12345678901234567890123"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_environment_is_what_the_config_passes_and_secrets_do_not_come_back() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let output = servers.call(&run, "environment", "{}").await;
    let env: Value = serde_json::from_str(text(&output)).unwrap();
    assert_eq!(env["KEY"], "[env:TOKEN]", "the server has it, and it is redacted here");
    assert!(env.get("PATH").is_some() && env.get("HIDDEN").is_none() && env.get("CARGO_MANIFEST_DIR").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_called_before_the_stream_is_polled_and_dropping_it_cancels() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    drop(servers.tools.call_tool(call_request(&run, "hang", "{}")));
    let mut events = servers.tools.call_tool(call_request(&run, "hang", "{}"));
    let first = tokio::select! {
        event = events.next() => event,
        () = wait_until("the call arrives", || servers.lines("calls").len() == 1) => None,
    };
    assert_eq!(first, None);
    drop(events);
    wait_until("the server is told", || servers.lines("notifications").contains(&"notifications/cancelled".to_owned()))
        .await;
    assert_eq!(text(&servers.call(&run, "echo", r#"{"text":"still here"}"#).await), "still here");
    assert_eq!((servers.lines("calls"), servers.pids().len()), (vec!["hang".to_owned(), "echo".to_owned()], 1));
    assert!(is_alive(servers.pids()[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_result_is_read() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let words = "é".repeat(400_000);
    let output = servers.call(&run, "echo", &json!({"text": words}).to_string()).await;
    assert_eq!(text(&output), words);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_over_the_limit_is_an_error() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let arguments = json!({"text": "x".repeat(2000)}).to_string();
    let small = ToolRequest { output_bytes_max: 1000, ..call_request(&run, "echo", &arguments) };
    let events = servers.events_of(small).await;
    let [ToolEvent::End(output)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(error(output).0, "output_too_large");
}
