//! Numbers that 64 bits cannot hold: what is shown, approved and carried out is the same text.

use crate::broker_fixture::{approval_path, wait_outcome};
use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use serde_json::{Value, json};

const TOOL: &str = r#"
[tools.work]
kind = "command"
command = ["sh", "-c", "cat >> ran; echo refunded"]
env_pass = ["PATH"]
approval = "amount > 100"
[tools.work.parameters]
type = "object"
properties.amount = { type = "number", minimum = 1 }
"#;
/// As the model writes them. In a float, each number is another one or has another text.
const WRITTEN: &str =
    r#"{"z": -0, "amount": 18446744073709551617, "e": [1e2, 1E+2], "pi": 3.14159265358979323846264338327950288}"#;
/// The same as an object on the wire.
const SHOWN: &str =
    r#"{"amount":18446744073709551617,"e":[1e2,1E+2],"pi":3.14159265358979323846264338327950288,"z":-0}"#;
/// What a person writes instead.
const EDITED: &str = r#"{"amount":123456789012345678901234567890,"e":-0.0,"pi":3.140e0}"#;
/// Beginnings of what floats make of them.
const ROUNDED: [&str; 6] = [
    "1.8446744073709552",
    "1.2345678901234568",
    "100.0",
    ":-0.0,\"pi\":3.14}",
    "3.141592653589793}",
    "3.141592653589793,",
];

async fn refund_server(arguments: &'static str) -> (RecordingUpstream, Server) {
    let upstream = RecordingUpstream::start(move |dialect, body| match dialect.has_results(body) {
        true => dialect.full_answer("It is done."),
        false => dialect.full_call("work", arguments),
    })
    .await;
    let server = Server::with_config(&(upstream.agents("tools = [\"work\"]") + TOOL), "");
    (upstream, server)
}

async fn start(hw: &Server, dialect: ProviderDialect) -> Value {
    hw.post("/v1/tasks", json!({"model": dialect.name(), "input": "refund A1", "wait": true})).await.json()
}

fn assert_exact(text: &str, wanted: &str, what: &str) {
    assert!(text.contains(wanted), "{what} lacks {wanted}: {text}");
    for rounded in ROUNDED {
        assert!(!text.contains(rounded), "{what} has {rounded}: {text}");
    }
}

fn in_string(json: &str) -> String {
    json!(json).to_string()
}

fn replay(hw: &Server, task: &Value, protocol: &str) -> String {
    let output = hw.run_cli(&["replay", task["task_id"].as_str().unwrap(), "--as", protocol, "--fast"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn events(hw: &Server, task: &Value) -> String {
    let frames = hw.frames(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap()), None).await;
    frames.iter().map(|frame| frame.raw.as_str()).collect()
}

/// Checks everything that shows the arguments of an ended run.
async fn assert_every_view(hw: &Server, task: &Value, (as_text, as_object): (&str, &str)) {
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    assert_exact(&hw.get(&path).await.text, &in_string(as_text), "the task");
    assert_exact(&events(hw, task).await, &format!("\"arguments\":{}", in_string(as_text)), "the events");
    assert_exact(&hw.get("/v1/approvals?limit=1").await.text, as_object, "the approvals");
    for (protocol, wanted) in [
        ("responses", in_string(as_text)),
        ("run-items", in_string(as_text)),
        ("messages", format!("\"input\":{as_object}")),
        ("blocks", format!("\"input\":{as_object}")),
        ("agent-runs", format!("\"tool_call_args\":{as_object}")),
    ] {
        assert_exact(&replay(hw, task, protocol), &wanted, protocol);
    }
    let history = format!("/api/v1/agent/history?threadId={}", task["thread_id"].as_str().unwrap());
    assert_exact(&hw.get(&history).await.text, &format!("\"tool_call_args\":{as_object}"), "the history");
}

fn assert_next_request(upstream: &RecordingUpstream, dialect: ProviderDialect, (as_text, as_object): (&str, &str)) {
    let wanted = match dialect {
        ProviderDialect::Messages => format!("\"input\":{as_object}"),
        ProviderDialect::Responses | ProviderDialect::Chat => format!("\"arguments\":{}", in_string(as_text)),
    };
    assert_exact(&upstream.last_request_text(dialect), &wanted, dialect.name());
}

#[tokio::test]
async fn numbers_of_the_model_are_shown_approved_and_carried_out_as_it_wrote_them() {
    let (upstream, mut hw) = refund_server(WRITTEN).await;
    for dialect in DIALECTS {
        let task = start(&hw, dialect).await;
        assert_eq!(task["status"], "paused", "a number beyond 64 bits is more than 100: {task}");
        let mut stream = hw.open_stream(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap())).await;
        assert_exact(stream.read_until("event: task.paused").await, &format!("\"args\":{SHOWN}"), "the request");
        let approved = hw.post(&approval_path(&task), json!({"decision": "approve"})).await;
        assert_eq!(approved.status, 200, "{}", approved.text);
        assert_exact(&approved.text, &format!("\"arguments\":{SHOWN}"), "the decision");
        let (ended, words) = wait_outcome(&hw, &task).await;
        assert_eq!(words, "It is done.", "{ended}");
        assert_eq!(std::fs::read_to_string(hw.path("ran")).unwrap().trim(), WRITTEN);
        std::fs::remove_file(hw.path("ran")).unwrap();
        assert_next_request(&upstream, dialect, (WRITTEN, SHOWN));
        assert_every_view(&hw, &task, (WRITTEN, SHOWN)).await;
        hw.kill9();
        hw.restart();
        assert_every_view(&hw, &task, (WRITTEN, SHOWN)).await;
    }
}

#[tokio::test]
async fn numbers_of_an_edit_are_carried_out_as_the_person_wrote_them() {
    let (upstream, mut hw) = refund_server(r#"{"amount":500}"#).await;
    for dialect in DIALECTS {
        let task = start(&hw, dialect).await;
        let (path, body) = (approval_path(&task), format!(r#"{{"decision":"edit","arguments":{EDITED}}}"#));
        let edited = hw.post_text(&path, &body).await;
        assert_eq!(edited.status, 200, "{}", edited.text);
        assert_exact(&edited.text, &format!("\"args\":{EDITED}"), "the decision");
        wait_outcome(&hw, &task).await;
        assert_eq!(std::fs::read_to_string(hw.path("ran")).unwrap().trim(), EDITED);
        std::fs::remove_file(hw.path("ran")).unwrap();
        assert_next_request(&upstream, dialect, (EDITED, EDITED));
        let late = hw.post_text(&path, &body.replace("3.140e0", "3.14")).await;
        assert_eq!(late.problem(), (409, "already_decided".to_owned()));
        assert_exact(&late.text, &format!("\"args\":{EDITED}"), "the refusal");
        assert_every_view(&hw, &task, (EDITED, EDITED)).await;
        hw.kill9();
        hw.restart();
        assert_every_view(&hw, &task, (EDITED, EDITED)).await;
    }
}

/// An edit that differs in nothing but the text of a number is an edit: the tool gets what the person wrote.
#[tokio::test]
async fn another_text_of_the_same_number_is_an_edit() {
    let (_upstream, hw) = refund_server(r#"{"amount": 5e2}"#).await;
    let task = start(&hw, ProviderDialect::Responses).await;
    let edit = |amount: &str| format!(r#"{{"decision":"edit","arguments":{{"amount":{amount}}}}}"#);
    assert_eq!(hw.post_text(&approval_path(&task), edit("500.0")).await.status, 200);
    wait_outcome(&hw, &task).await;
    assert_eq!(std::fs::read_to_string(hw.path("ran")).unwrap().trim(), r#"{"amount":500.0}"#);
    let task = start(&hw, ProviderDialect::Responses).await;
    assert_eq!(hw.post_text(&approval_path(&task), edit("1e999")).await.problem(), (400, "invalid_json".to_owned()));
    let schema = hw.post_text(&approval_path(&task), edit("-18446744073709551617")).await;
    assert_eq!(schema.problem(), (422, "invalid_arguments".to_owned()), "the schema says at least 1: {}", schema.text);
}

#[tokio::test]
async fn a_rule_compares_the_number_that_is_written() {
    for (arguments, is_asked) in
        [(r#"{"amount":1e2}"#, false), (r#"{"amount":100.00000000000000000001}"#, true), (r#"{"amount":1e300}"#, true)]
    {
        let (_upstream, hw) = refund_server(arguments).await;
        let task = start(&hw, ProviderDialect::Chat).await;
        assert_eq!(task["status"], if is_asked { "paused" } else { "completed" }, "{arguments}");
    }
}

#[tokio::test]
async fn metadata_come_back_as_they_were_sent() {
    let (_upstream, mut hw) = refund_server(r#"{"amount":1}"#).await;
    let body = |text: &str| format!(r#"{{{text},"metadata":{EDITED}}}"#);
    let task = hw.post_text("/v1/tasks", body(r#""model":"chat","input":"hi","wait":true"#)).await;
    assert_exact(&task.text, &format!("\"metadata\":{EDITED}"), "the answer");
    let task = task.json();
    let run = hw.post_text("/api/v1/agent/runs", body(r#""message":"hi","agent":"chat","threadId":"mine""#)).await;
    assert!(run.status < 300, "{}", run.text);
    let response = hw.post_text("/v1/responses", body(r#""model":"chat","input":"hi""#)).await;
    let texts = r#""metadata":{"amount":"123456789012345678901234567890","e":"-0.0","pi":"3.140e0"}"#;
    assert_exact(&response.text, texts, "the response");
    let response = format!("/v1/responses/{}", response.json()["id"].as_str().unwrap());
    let created = hw.post_text("/v1/conversations", format!(r#"{{"metadata":{EDITED}}}"#)).await;
    assert_exact(&created.text, &format!("\"metadata\":{EDITED}"), "the new conversation");
    let conversation = format!("/v1/conversations/{}", created.json()["id"].as_str().unwrap());
    let changed = hw.post_text(&conversation, r#"{"metadata":{"n":1e2}}"#.to_owned()).await;
    assert_exact(&changed.text, r#""metadata":{"n":1e2}"#, "the changed conversation");
    for _ in ["live", "restarted"] {
        let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
        assert_exact(&hw.get(&path).await.text, &format!("\"metadata\":{EDITED}"), "the task");
        assert_exact(&events(&hw, &task).await, &format!("\"metadata\":{EDITED}"), "the events");
        assert_exact(&hw.get(&response).await.text, texts, "the stored response");
        assert_exact(&hw.get(&conversation).await.text, r#""metadata":{"n":1e2}"#, "the stored conversation");
        let history = hw.get("/api/v1/agent/history?threadId=mine").await.text;
        assert_exact(&history, &EDITED[..EDITED.len() - 1], "the history");
        hw.kill9();
        hw.restart();
    }
}

/// A repeated request is one with the same numbers.
#[tokio::test]
async fn requests_that_differ_in_a_digit_are_different() {
    let (_upstream, hw) = refund_server(r#"{"amount":1}"#).await;
    let send = async |number: &str| {
        let body = format!(r#"{{"model":"chat","input":"hi","metadata":{{"n":{number}}}}}"#);
        let request = hw.client.post(hw.url("/v1/tasks")).header("idempotency-key", "k1");
        let request = request.header("content-type", "application/json").body(body);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(send("18446744073709551617").await, 202);
    assert_eq!(send("18446744073709551617").await, 202);
    assert_eq!(send("18446744073709551618").await, 409);
}
