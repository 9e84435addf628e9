//! `/v1/chat/completions` over HTTP: requests, answers, continuations and errors. What it shares with `/v1/messages` is
//! tested there; the real SDK is in `e2e/`.

#[path = "../../../protocol/tests/it/chat/accumulator.rs"]
mod accumulator;

use crate::harness::{Reply, Server};
use accumulator::{Collected, collect, read};
use reqwest::Method;
use serde_json::{Value, json};

const ROUTE: &str = "/v1/chat/completions";
const DONE: &str = "data: [DONE]\n\n";

fn body(messages: &Value) -> Value {
    json!({"model": "demo", "messages": messages})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

async fn create(hw: &Server, body: Value) -> Value {
    let reply = hw.post(ROUTE, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// A stream accumulated as a client does.
fn collected(text: &str) -> Collected {
    assert!(!text.contains("retry:") && !text.contains("id:") && !text.contains("event:"), "{text}");
    let chunks = text.strip_suffix(DONE).unwrap_or_else(|| panic!("no farewell: {text}"));
    collect(&read(chunks.as_bytes())).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

async fn stream(hw: &Server, mut body: Value) -> Value {
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let reply = hw.post(ROUTE, body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream; charset=utf-8"));
    match collected(&reply.text) {
        Collected::Completion(completion) => completion,
        other => panic!("{other:?}"),
    }
}

fn message(completion: &Value) -> &Value {
    &completion["choices"][0]["message"]
}

/// The status, type and code of an error response, whose format is checked.
fn error(reply: &Reply) -> (u16, String, String) {
    assert_eq!(reply.header("content-type"), "application/json", "{}", reply.text);
    let error = reply.json()["error"].clone();
    assert!(error["message"].is_string() && error.get("param").is_some(), "{error}");
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (reply.status, text("type"), text("code"))
}

#[tokio::test]
async fn the_streamed_and_the_plain_answer_agree() {
    let hw = Server::demo();
    for said in ["hello", "weather", "help", "parallel", "handoff", "image", "story 30 fast"] {
        let streamed = stream(&hw, body(&json!([user(said)]))).await;
        let whole = create(&hw, body(&json!([user(said)]))).await;
        let without_place = |completion: &Value| {
            let mut choice = completion["choices"][0].clone();
            for cited in choice["message"].get_mut("annotations").and_then(Value::as_array_mut).into_iter().flatten() {
                cited["url_citation"]["url"] = json!("of a thread");
            }
            (choice, completion["usage"].clone(), completion["model"].clone())
        };
        assert_eq!(without_place(&streamed), without_place(&whole), "{said}");
        assert_eq!(whole["choices"][0]["finish_reason"], "stop", "{said}");
    }
    let whole = create(&hw, body(&json!([user("weather")]))).await;
    assert!(message(&whole)["reasoning_content"].is_string() && message(&whole).get("tool_calls").is_none(), "{whole}");
}

#[tokio::test]
async fn usage_is_streamed_only_on_request() {
    let hw = Server::demo();
    let mut asked = body(&json!([user("story 2 fast")]));
    asked["stream"] = json!(true);
    let reply = hw.post(ROUTE, asked).await;
    assert!(!reply.text.contains("usage"), "{}", reply.text);
}

#[tokio::test]
async fn a_client_tool_is_called_and_its_result_counts_once() {
    let hw = Server::demo();
    let tools = json!([{"type": "function", "function": {"name": "pick", "parameters": {"type": "object"}}}]);
    for streams in [false, true] {
        let ask = async |messages: Value| {
            let mut body = body(&messages);
            body["tools"] = tools.clone();
            if streams { stream(&hw, body).await } else { create(&hw, body).await }
        };
        let asked = user("a client tool");
        let first = ask(json!([asked])).await;
        assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
        let call = &message(&first)["tool_calls"][0];
        assert_eq!(call["function"], json!({"name": "pick", "arguments": "{}"}));
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "red"});
        let history = json!([asked, message(&first), result]);
        let second = ask(history.clone()).await;
        assert_eq!(message(&second)["content"], "Your tool pick says: red");
        assert_eq!(second["id"], format!("{}_2", first["id"].as_str().unwrap()), "it is the same run");
        assert_eq!(ask(history).await, second, "asked again, answered again");
        // The call's id now identifies the thread.
        let history = json!([asked, message(&first), result, message(&second), user("story 2 fast")]);
        ask(history).await;
    }
    let threads = hw.get("/v1/threads").await.json()["data"].as_array().unwrap().len();
    let runs = hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len();
    assert_eq!((threads, runs), (2, 4));
}

#[tokio::test]
async fn a_failed_run_is_an_error() {
    let hw = Server::demo();
    let mut asked = body(&json!([user("fail")]));
    let reply = hw.post(ROUTE, asked.clone()).await;
    assert_eq!(error(&reply), (500, "server_error".to_owned(), "run_failed".to_owned()));
    assert_eq!(reply.header("x-should-retry"), "true");
    asked["stream"] = json!(true);
    let reply = hw.post(ROUTE, asked).await;
    let Collected::Error(told) = collected(&reply.text) else { panic!("{}", reply.text) };
    assert_eq!((reply.status, &told["type"], &told["code"]), (200, &json!("server_error"), &json!("run_failed")));
}

#[tokio::test]
async fn a_repeated_key_returns_the_same_completion() {
    let hw = Server::demo();
    let post = async || {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        let body = body(&json!([user("story 3 fast")])).to_string().into_bytes();
        hw.request(Method::POST, ROUTE, &headers, Some(body)).await.json()
    };
    assert_eq!(post().await, post().await);
    assert_eq!(hw.count_threads_and_records().await.0, 1);
}

#[tokio::test]
async fn an_unsupported_request_is_refused_before_anything_starts() {
    let hw = Server::demo();
    for (bad, param) in [
        (json!({"model": "demo"}), "messages"),
        (json!({"model": "demo", "messages": [user("hi")], "n": 3, "stream": true}), "n"),
        (json!({"model": "demo", "messages": [{"role": "user", "content": 5}], "stream": true}), "messages[0].content"),
        (json!({"model": "demo", "messages": [user("hi")], "tools": [{"type": "custom"}]}), "tools[0].type"),
    ] {
        let reply = hw.post(ROUTE, bad.clone()).await;
        assert_eq!(error(&reply), (400, "invalid_request_error".to_owned(), "invalid_body".to_owned()), "{bad}");
        assert_eq!(reply.json()["error"]["param"], param, "{bad}");
    }
    let unknown = hw.post(ROUTE, json!({"model": "nobody", "messages": [user("hi")]})).await;
    assert_eq!(error(&unknown), (404, "not_found_error".to_owned(), "model_not_found".to_owned()));
    assert_eq!(hw.count_threads_and_records().await, (0, 0));
}
