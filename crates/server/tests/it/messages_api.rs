//! `/v1/messages` over HTTP: requests, answers, continuations and errors. The real SDK is in `e2e/`; here are the cases
//! that it does not reach.

#[path = "../../../protocol/tests/it/messages/accumulator.rs"]
mod accumulator;

use crate::broker_fixture::broker_server;
use crate::harness::{Reply, Server};
use accumulator::{Collected, collect};
use reqwest::Method;
use serde_json::{Value, json};

const ROUTE: &str = "/v1/messages";

fn body(messages: &Value) -> Value {
    json!({"model": "demo", "max_tokens": 1000, "messages": messages})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(message: &Value) -> Value {
    json!({"role": "assistant", "content": message["content"]})
}

async fn create(hw: &Server, body: Value) -> Value {
    let reply = hw.post(ROUTE, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// A stream accumulated as a client does.
fn collected(text: &str) -> Collected {
    assert!(!text.contains("retry:") && !text.contains("\nid:") && !text.contains("[DONE]"), "{text}");
    let frame = |raw: &str| {
        let field = |name: &str| raw.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let data: String = field("data: ")?;
        Some((field("event: ").unwrap(), serde_json::from_str(&data).unwrap()))
    };
    let frames: Vec<(String, Value)> = text.split("\n\n").filter_map(frame).collect();
    collect(&frames).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

async fn stream(hw: &Server, mut body: Value) -> Value {
    body["stream"] = json!(true);
    let reply = hw.post(ROUTE, body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream; charset=utf-8"));
    match collected(&reply.text) {
        Collected::Message(message) => message,
        other => panic!("{other:?}"),
    }
}

/// A message without the ids of its run.
fn plain(message: &Value) -> Value {
    let id = message["id"].as_str().unwrap().strip_prefix("msg_").unwrap();
    let text = message.to_string().replace(&id[..32], "R");
    let mut plain: Value = serde_json::from_str(&text).unwrap();
    for block in plain["content"].as_array_mut().unwrap() {
        for citation in block.get_mut("citations").and_then(Value::as_array_mut).into_iter().flatten() {
            citation["source"] = json!("of a thread");
        }
    }
    plain
}

fn text_of(message: &Value) -> String {
    message["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

/// The status and type of an error response, whose format is checked.
fn error(reply: &Reply) -> (u16, String) {
    assert_eq!(reply.header("content-type"), "application/json", "{}", reply.text);
    let body = reply.json();
    assert!(body["type"] == "error" && body["error"]["message"].is_string(), "{body}");
    assert_eq!(body["request_id"], reply.header("x-request-id"), "{body}");
    (reply.status, body["error"]["type"].as_str().unwrap().to_owned())
}

/// The runs of the only thread, oldest first.
async fn runs(hw: &Server) -> Vec<Value> {
    assert_eq!(hw.get("/v1/threads").await.json()["data"].as_array().unwrap().len(), 1, "one thread");
    let mut runs = hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().clone();
    runs.reverse();
    runs
}

#[tokio::test]
async fn the_streamed_and_the_plain_answer_agree() {
    let hw = Server::demo();
    for said in ["hello", "weather", "help", "parallel", "handoff", "image", "story 30 fast"] {
        let streamed = stream(&hw, body(&json!([user(said)]))).await;
        let whole = create(&hw, body(&json!([user(said)]))).await;
        assert_eq!((&whole["stop_reason"], &whole["model"]), (&json!("end_turn"), &json!("demo")), "{said}");
        let (mut streamed, mut whole) = (plain(&streamed), plain(&whole));
        if said == "parallel" {
            // They run in parallel and end in any order.
            for message in [&mut streamed, &mut whole] {
                message["content"].as_array_mut().unwrap().sort_by_key(Value::to_string);
            }
        }
        assert_eq!(streamed, whole, "{said}");
    }
}

#[tokio::test]
async fn a_model_without_an_agent_is_called_by_its_name() {
    let hw = Server::demo();
    let mut body = body(&json!([user("story 3 fast")]));
    body["model"] = json!("scripted/any");
    assert_eq!(create(&hw, body).await["model"], "scripted/any");
}

#[tokio::test]
async fn a_client_tool_is_called_and_its_result_counts_once() {
    let hw = Server::demo();
    let tools = json!([{"name": "pick", "description": "Picks.", "input_schema": {"type": "object"}}]);
    for streams in [false, true] {
        let ask = async |messages: Value| {
            let mut body = body(&messages);
            body["tools"] = tools.clone();
            if streams { stream(&hw, body).await } else { create(&hw, body).await }
        };
        let asked = user("a client tool");
        let first = ask(json!([asked])).await;
        assert_eq!(first["stop_reason"], "tool_use");
        let call = first["content"].as_array().unwrap().last().unwrap();
        assert_eq!((&call["type"], &call["name"], &call["input"]), (&json!("tool_use"), &json!("pick"), &json!({})));
        let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "red"});
        let history = json!([asked, assistant(&first), {"role": "user", "content": [result]}]);
        let second = ask(history.clone()).await;
        assert_eq!(
            (text_of(&second).as_str(), &second["stop_reason"]),
            ("Your tool pick says: red", &json!("end_turn"))
        );
        assert_eq!(second["id"], format!("{}_2", first["id"].as_str().unwrap()), "it is the same run");
        assert_eq!(ask(history).await, second, "asked again, answered again");
    }
    assert_eq!(hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_failed_result_is_marked_and_text_next_to_a_result_is_read() {
    let hw = Server::demo();
    let mut asked = body(&json!([user("a client tool")]));
    asked["tools"] = json!([{"name": "pick", "input_schema": {"type": "object"}}]);
    let first = create(&hw, asked.clone()).await;
    let call = &first["content"][0];
    let failed = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "no colours", "is_error": true});
    let words = json!({"type": "text", "text": "Take green."});
    asked["messages"] = json!([user("a client tool"), assistant(&first), {"role": "user", "content": [failed, words]}]);
    let second = create(&hw, asked).await;
    assert_eq!(text_of(&second), "Your tool pick could not do it: no colours\nTake green.");
}

#[tokio::test]
async fn several_results_count_together() {
    let hw = broker_server("");
    let parameters = json!({"type": "object", "properties": {"what": {"type": "string"}}});
    let asked = user("both");
    let mut body = json!({"model": "broker", "max_tokens": 100, "messages": [asked],
        "tools": [{"name": "locate", "input_schema": parameters}, {"name": "measure", "input_schema": parameters}]});
    let first = create(&hw, body.clone()).await;
    let content = first["content"].as_array().unwrap();
    let calls: Vec<&Value> = content.iter().filter(|block| block["type"] == "tool_use").collect();
    assert_eq!(calls.len(), 2, "{first}");
    let result = |call: &&Value| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "here"});
    let results: Vec<Value> = calls.iter().map(result).collect();
    body["messages"] = json!([asked, assistant(&first), {"role": "user", "content": [results[0]]}]);
    assert_eq!(error(&hw.post(ROUTE, body.clone()).await), (400, "invalid_request_error".to_owned()), "one is missing");
    body["messages"] = json!([asked, assistant(&first), {"role": "user", "content": results}]);
    let second = create(&hw, body).await;
    assert_eq!(second["stop_reason"], "end_turn", "{second}");
}

#[tokio::test]
async fn resent_ids_identify_the_thread_and_the_rest_is_compared() {
    let hw = Server::demo();
    let weather = user("weather");
    let first = create(&hw, body(&json!([weather]))).await;
    let second_asked = user("story 3 fast");
    let history = json!([weather, assistant(&first), second_asked]);
    let second = create(&hw, body(&history)).await;
    let third_asked =
        json!({"role": "user", "content": [{"type": "text", "text": "story 4"}, {"type": "text", "text": "fast"}]});
    let history = json!([weather, assistant(&first), second_asked, assistant(&second), third_asked]);
    let third = create(&hw, body(&history)).await;
    let fourth_asked = user("story 5 fast");
    let history = json!([
        weather,
        assistant(&first),
        second_asked,
        assistant(&second),
        third_asked,
        assistant(&third),
        fourth_asked
    ]);
    create(&hw, body(&history)).await;
    let all = runs(&hw).await;
    assert_eq!(all.len(), 4);
    // Another second question continues from the first answer, in the same thread.
    let other = user("story 2 fast");
    create(&hw, body(&json!([weather, assistant(&first), other]))).await;
    let all = runs(&hw).await;
    let spec = async |run: &Value| {
        let path = format!("/v1/tasks/{}/events", run["task_id"].as_str().unwrap());
        hw.frames(&path, None).await[0].data["task"].clone()
    };
    let words = async |run: &Value| {
        let spec = spec(run).await;
        let parts =
            spec["input"].as_array().unwrap().iter().flat_map(|message| message["content"].as_array().unwrap().clone());
        parts.map(|part| part["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut told = Vec::new();
    for run in &all {
        told.push((words(run).await, spec(run).await["previous"].clone()));
    }
    let id = |place: usize| all[place]["task_id"].clone();
    assert_eq!(
        told,
        [
            (vec!["weather".to_owned()], Value::Null),
            (vec!["story 3 fast".to_owned()], id(0)),
            (vec!["story 4".to_owned(), "fast".to_owned()], id(1)),
            (vec!["story 5 fast".to_owned()], id(2)),
            (vec!["story 2 fast".to_owned()], id(0)),
        ]
    );
}

#[tokio::test]
async fn a_history_without_known_ids_starts_a_thread() {
    let hw = Server::demo();
    let call = json!({"type": "tool_use", "id": "toolu_01", "name": "find", "input": {"n": 1}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_01", "content": "found"});
    let messages = json!([user("Find it."), {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [result]}, {"role": "assistant", "content": "Here."}, user("story 2 fast")]);
    let first = create(&hw, body(&messages)).await;
    assert_eq!(first["stop_reason"], "end_turn");
    create(&hw, body(&messages)).await;
    assert_eq!(hw.get("/v1/threads").await.json()["data"].as_array().unwrap().len(), 2);
    // A turn that ends with a foreign result is continued without user input.
    let messages =
        json!([user("story 1 fast"), {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]);
    assert_eq!(create(&hw, body(&messages)).await["stop_reason"], "end_turn");
}

#[tokio::test]
async fn an_answer_stays_open_until_the_approval_is_decided() {
    let hw = Server::demo_with("[limits]\nheartbeat_ms = 20");
    let mut asked = body(&json!([user("trade")]));
    asked["stream"] = json!(true);
    let mut response = hw.client.post(hw.url(ROUTE)).json(&asked).send().await.unwrap();
    hw.wait_until("a person is asked", async || {
        !hw.get("/v1/approvals").await.json()["data"].as_array().unwrap().is_empty()
    })
    .await;
    let question = hw.get("/v1/approvals").await.json()["data"][0].clone();
    let mut text = String::new();
    // Keep-alives continue.
    while text.matches(":\n\n").count() < 5 || !text.contains("content_block_stop") {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert!(!text.contains("message_delta") && !text.contains("mcp_tool_use"), "{text}");
    let path =
        format!("/v1/tasks/{}/approvals/{}", question["run_id"].as_str().unwrap(), question["key"].as_str().unwrap());
    assert_eq!(hw.post(&path, json!({"decision": "approve"})).await.status, 200);
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let Collected::Message(message) = collected(&text) else { panic!("{text}") };
    let kinds: Vec<&str> =
        message["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "mcp_tool_use", "mcp_tool_result", "text"]);
}

#[tokio::test]
async fn a_failed_run_is_an_error() {
    let hw = Server::demo();
    let mut asked = body(&json!([user("fail")]));
    let reply = hw.post(ROUTE, asked.clone()).await;
    assert_eq!(error(&reply), (500, "api_error".to_owned()));
    assert_eq!((reply.header("x-should-retry"), hw.count_threads_and_records().await.0), ("true", 1));
    asked["stream"] = json!(true);
    let reply = hw.post(ROUTE, asked).await;
    let Collected::Error(told) = collected(&reply.text) else { panic!("{}", reply.text) };
    assert_eq!((reply.status, told["type"].as_str().unwrap()), (200, "api_error"));
}

#[tokio::test]
async fn a_cancelled_run_is_an_error() {
    let hw = Server::demo();
    let ask = hw.post(ROUTE, body(&json!([user("slow 30")])));
    let stop = async {
        let running = async || hw.get("/v1/tasks?status=running").await.json()["data"][0]["task_id"].clone();
        hw.wait_until("it runs", async || running().await.is_string()).await;
        let task = running().await;
        assert_eq!(hw.post(&format!("/v1/tasks/{}/cancel", task.as_str().unwrap()), json!({})).await.status, 202);
    };
    let (reply, ()) = tokio::join!(ask, stop);
    assert_eq!((error(&reply), reply.header("x-should-retry")), ((500, "api_error".to_owned()), "false"));
}

#[tokio::test]
async fn a_repeated_key_returns_the_same_message() {
    let hw = Server::demo();
    let post = async |said: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        let body = body(&json!([user(said)])).to_string().into_bytes();
        hw.request(Method::POST, ROUTE, &headers, Some(body)).await
    };
    let first = post("story 3 fast").await;
    assert_eq!(post("story 3 fast").await.json(), first.json());
    assert_eq!(error(&post("story 4 fast").await).0, 409);
    assert_eq!(hw.count_threads_and_records().await.0, 1);
}

#[tokio::test]
async fn an_unsupported_request_is_refused_before_anything_starts() {
    let hw = Server::demo();
    let invalid = || (400, "invalid_request_error".to_owned());
    for bad in [
        json!([]),
        json!({"model": "demo"}),
        json!({"model": "demo", "messages": "hi"}),
        json!({"model": "demo", "messages": [user("hi")], "stream": "yes"}),
        json!({"model": "demo", "messages": [user("hi")], "tools": [{"name": "a b", "input_schema": {"type": "object"}}]}),
        json!({"model": "demo", "messages": [user("hi")], "tools": [{"name": "ask_for_help", "input_schema": {"type": "object"}}]}),
        json!({"model": "demo", "messages": [user("hi")], "stream": true, "tools": [{"type": "bash_20250124", "name": "bash"}]}),
        json!({"model": "demo", "messages": [user("hi"), {"role": "assistant", "content": "So"}], "stream": true}),
    ] {
        assert_eq!(error(&hw.post(ROUTE, bad.clone()).await), invalid(), "{bad}");
    }
    assert_eq!(error(&hw.post_text(ROUTE, "{").await), invalid());
    let unknown = json!({"model": "nobody", "messages": [user("hi")], "stream": true});
    assert_eq!(error(&hw.post(ROUTE, unknown).await), (404, "not_found_error".to_owned()));
    let large = body(&json!([user(&"x".repeat(900_000))]));
    assert_eq!(error(&hw.post(ROUTE, large).await), (413, "request_too_large".to_owned()));
    assert_eq!(hw.get(ROUTE).await.status, 405);
    assert_eq!(hw.count_threads_and_records().await, (0, 0));
    let mut fine = body(&json!([user("story 1 fast")]));
    fine["top_k"] = json!(5);
    fine["a_field_of_tomorrow"] = json!({"x": []});
    assert_eq!(hw.post(&format!("{ROUTE}?beta=true"), fine).await.status, 200);
}

#[tokio::test]
async fn the_key_may_be_in_the_header_of_these_clients() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    let made = hw.run_cli(&["keys", "create", "--user", "ann"]);
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let post = async |headers: &[(&str, &str)]| {
        let headers = [&[("content-type", "application/json")], headers].concat();
        hw.request(Method::POST, ROUTE, &headers, Some(body(&json!([user("story 1 fast")])).to_string().into_bytes()))
            .await
    };
    assert_eq!(post(&[("x-api-key", &key)]).await.status, 200);
    let bearer = format!("Bearer {key}");
    assert_eq!(post(&[("authorization", &bearer)]).await.status, 200);
    let wrong: [&[(&str, &str)]; 5] = [
        &[],
        &[("x-api-key", "hw_nobody")],
        &[("x-api-key", &bearer)],
        &[("x-api-key", &key), ("x-api-key", &key)],
        &[("x-api-key", &key), ("authorization", &bearer)],
    ];
    for headers in wrong {
        assert_eq!(error(&post(headers).await), (401, "authentication_error".to_owned()), "{headers:?}");
    }
}

#[tokio::test]
async fn a_history_of_another_user_is_foreign() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    let key = |user: &str| {
        String::from_utf8(hw.run_cli(&["keys", "create", "--user", user]).stdout).unwrap().trim().to_owned()
    };
    let (ann, ben) = (key("ann"), key("ben"));
    let hw = hw.with_key(&ann);
    let mut asked = body(&json!([user("a client tool")]));
    asked["tools"] = json!([{"name": "pick", "input_schema": {"type": "object"}}]);
    let first = create(&hw, asked.clone()).await;
    let result = json!({"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "red"});
    asked["messages"] = json!([user("a client tool"), assistant(&first), {"role": "user", "content": [result]}]);
    let hw = hw.with_key(&ben);
    let bens = create(&hw, asked.clone()).await;
    assert_ne!(bens["id"], format!("{}_2", first["id"].as_str().unwrap()));
    let hw = hw.with_key(&ann);
    assert_eq!(hw.get("/v1/tasks").await.json()["data"][0]["status"], "paused", "nobody has answered");
    assert_eq!(text_of(&create(&hw, asked).await), "Your tool pick says: red");
}
