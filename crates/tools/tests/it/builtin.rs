//! The tools that come with the server, as the engine calls them.

use crate::test_toolbox::{NOW, call, failed, request, said, start};
use futures_util::StreamExt;
use model::content::ContentPart;
use model::definition::{ApprovalPolicy, ToolExecutor};
use model::item::{ApprovalGate, CallKind};
use model::tool::{ProgressUpdate, ToolEvent, ToolRequest};
use serde_json::{Value, json};
use tokio::time::Instant;
use tools::builtin::{builtin_definition, builtin_names};

fn asking(name: &str, arguments: &str) -> ToolRequest {
    ToolRequest { name: name.to_owned(), ..request(ToolExecutor::Builtin, arguments) }
}

#[tokio::test]
async fn the_weather_has_text_and_an_image_for_model_and_user() {
    let (_, output) = call(asking("get_weather", r#"{"location":"Paris, France"}"#)).await;
    let output = serde_json::to_value(&output).unwrap();
    let url = output["block_list"][1]["image_url"]["url"].clone();
    let text = r#"{"temperature":"15C","condition":"Sunny"}"#;
    let wanted = json!({
        "message_content": [
            { "type": "text", "text": text },
            { "type": "image_url", "image_url": { "url": url } },
        ],
        "block_list": [
            { "type": "text", "text": text },
            { "type": "image", "image_url": { "url": url } },
        ],
        "summary": null,
        "artifact": null,
        "ui_hints": null,
        "error": null,
    });
    assert_eq!(output, wanted);
    let url = url.as_str().unwrap();
    assert!(url.len() < 2048 && url.starts_with("data:image/png;base64,iVBORw0KGgo"), "{url}");
}

#[tokio::test]
async fn invalid_arguments_are_refused_with_a_reason_for_the_model() {
    let cases = [
        ("get_weather", "", "EOF"),
        ("get_weather", "null", "invalid type: null"),
        ("get_weather", "{}", "missing field `location`"),
        ("get_weather", r#"{"location":3}"#, "invalid type: integer"),
        ("get_weather", r#"{"location":" "}"#, "`location` is empty"),
        ("get_weather", r#"{"location":"Paris","unit":"F"}"#, "unknown field `unit`"),
        ("get_weather", r#"{"location":"Paris"} {}"#, "trailing characters"),
        ("clock", r#"{"timezone":"Europe/Paris"}"#, "only UTC is"),
        ("calculator", r#"{"expression":"1 +"}"#, "a number is missing at the end"),
        ("execute_trade", r#"{"symbol":"VNM"}"#, "missing field `quantity`"),
        ("execute_trade", r#"{"symbol":"VNM","quantity":0}"#, "`quantity` is 0"),
        ("execute_trade", r#"{"symbol":"VNM","quantity":-1}"#, "invalid value"),
        ("execute_trade", r#"{"symbol":"","quantity":1}"#, "`symbol` is empty"),
        ("slow", r#"{"seconds":601}"#, "`seconds` is more than 600"),
        ("slow", r#"{"seconds":0.5}"#, "invalid type"),
        ("tool_a", r#"{"x":1}"#, "unknown field `x`"),
    ];
    for (name, arguments, why) in cases {
        let (code, message) = failed(asking(name, arguments)).await;
        assert_eq!(code, "invalid_arguments");
        assert!(message.starts_with("invalid arguments: ") && message.contains(why), "{message}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_an_error() {
    let (code, message) = failed(asking("get_wether", "{}")).await;
    assert_eq!((code.as_str(), message.as_str()), ("unknown_tool", "no builtin tool is named `get_wether`"));
}

#[tokio::test]
async fn every_tool_is_defined_and_runs() {
    for name in builtin_names() {
        let tool = builtin_definition(name).unwrap();
        assert_eq!(tool.spec.name, *name);
        assert_eq!(tool.spec.parameters["type"], "object");
        assert!(!tool.spec.description.is_empty() && tool.display_name.is_some());
        assert_eq!((tool.executor.clone(), tool.call_kind()), (ToolExecutor::Builtin, CallKind::Tool));
        assert_eq!(tool.idempotent, name != "execute_trade");
        assert_eq!(failed(asking(name, "[]")).await.0, "invalid_arguments", "{name}");
    }
    assert_eq!(builtin_definition("nothing"), None);
}

#[test]
fn the_weather_needs_no_approval_and_is_idempotent() {
    let tool = builtin_definition("get_weather").unwrap();
    assert_eq!(
        (tool.approval_gate(), tool.idempotent, tool.display_name.as_deref()),
        (ApprovalGate::Never, true, Some("Weather"))
    );
    assert_eq!(tool.spec.parameters["required"], Value::from(vec!["location"]));
}

#[tokio::test]
async fn a_trade_needs_approval_and_is_not_idempotent() {
    let tool = builtin_definition("execute_trade").unwrap();
    assert_eq!((tool.approval, tool.approval_timeout_seconds, tool.idempotent), (ApprovalPolicy::Always, 300, false));
    assert_eq!(tool.display_name.as_deref(), Some("Trade"));
    let placed = said(asking("execute_trade", r#"{"symbol":"VNM","quantity":100}"#)).await;
    assert_eq!(placed, "Order placed: VNM x100");
}

#[tokio::test]
async fn the_clock_returns_the_injected_time() {
    for arguments in ["{}", r#"{"timezone":"utc"}"#, r#"{"timezone":null}"#] {
        let told = said(asking("clock", arguments)).await;
        assert_eq!(told, format!(r#"{{"time":"2024-03-09T16:00:00.800Z","unix_ms":{NOW}}}"#));
    }
}

#[tokio::test]
async fn the_calculator_calculates() {
    assert_eq!(said(asking("calculator", r#"{"expression":"2 * (3.5 + 4)^2"}"#)).await, "112.5");
    let (code, message) = failed(asking("calculator", r#"{"expression":"1 / 0"}"#)).await;
    assert_eq!((code.as_str(), message.as_str()), ("calculation_failed", "division by zero"));
}

#[tokio::test(start_paused = true)]
async fn the_three_delay_tools_wait_for_their_delay() {
    for (name, ms, end) in [("tool_a", 100, "a done"), ("tool_b", 300, "b done"), ("tool_c", 600, "c done")] {
        let begun = Instant::now();
        assert_eq!(said(asking(name, "{}")).await, end);
        assert_eq!(begun.elapsed().as_millis(), ms, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reports_progress_every_fifth_of_a_second() {
    let begun = Instant::now();
    let mut events = start(asking("slow", r#"{"seconds":2}"#));
    for step in 1..=10_u32 {
        let progress = ProgressUpdate {
            message: Some(format!("step {step} of 10")),
            progress: Some(f64::from(step)),
            total: Some(10.0),
        };
        assert_eq!(events.next().await, Some(ToolEvent::Progress(progress)));
        assert_eq!(begun.elapsed().as_millis(), u128::from(step) * 200);
    }
    let Some(ToolEvent::End(output)) = events.next().await else { panic!() };
    assert_eq!(output.message_content, [ContentPart::text("done after 2 s")]);
    assert_eq!(events.next().await, None);
    assert_eq!(said(asking("slow", r#"{"seconds":0}"#)).await, "done after 0 s");
    assert!(builtin_definition("slow").unwrap().timeout_ms > Some(600_000));
}
