//! `/v1/responses` over HTTP: requests, answers, continuations, resumes, cancels and errors. The real SDKs are in
//! `e2e/`; here are the cases that they do not reach.

#[path = "../../../protocol/tests/it/responses/order.rs"]
#[expect(dead_code, reason = "raw responses inside run items are checked where they are made")]
mod order;

use crate::harness::{Reply, Server, TEST_TIMEOUT};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

pub(crate) async fn create_response(hw: &Server, body: Value) -> Value {
    let reply = hw.post("/v1/responses", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

pub(crate) async fn get_response(hw: &Server, id: &Value) -> Value {
    let reply = hw.get(&format!("/v1/responses/{}", id.as_str().unwrap())).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// The events of a stream, which must have its end marker.
pub(crate) fn parse_events(text: &str) -> Vec<Value> {
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(!text.contains("retry:") && !text.contains("id:"), "these clients take any field for an event");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    if events.first().is_some_and(|first| first["type"] == "response.created") {
        let frames: Vec<_> =
            events.iter().map(|event| (event["type"].as_str().unwrap().to_owned(), event.clone())).collect();
        order::check(&frames, &truncated_item_ids(&events)).unwrap();
    }
    events
}

/// The items of turns lost in a crash: they are streamed, and not in the final output.
fn truncated_item_ids(events: &[Value]) -> BTreeSet<String> {
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let kept = &events.last().unwrap()["response"]["output"];
    let is_lost = |item: &&Value| {
        item["status"] == "incomplete" && !kept.as_array().unwrap().iter().any(|kept| kept["id"] == item["id"])
    };
    let lost = done.map(|event| &event["item"]).filter(is_lost);
    lost.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn output_text(response: &Value) -> String {
    let parts = response["output"].as_array().unwrap().iter().flat_map(|item| item["content"].as_array());
    parts.flatten().filter_map(|part| part["text"].as_str()).collect()
}

pub(crate) fn parse_error(reply: &Reply) -> (u16, String, Value) {
    assert_eq!(reply.header("content-type"), "application/json", "{}", reply.text);
    let error = reply.json()["error"].clone();
    assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
    (reply.status, error["code"].as_str().unwrap_or_default().to_owned(), error["param"].clone())
}

#[tokio::test]
async fn the_streamed_response_equals_the_stored_one() {
    let hw = Server::demo();
    for input in ["hello", "weather", "help", "parallel", "handoff", "image", "fail", "story 30 fast"] {
        let reply = hw.post("/v1/responses", json!({"model": "demo", "input": input, "stream": true})).await;
        let events = parse_events(&reply.text);
        let last = events.last().unwrap();
        assert_eq!(get_response(&hw, &last["response"]["id"]).await, last["response"], "{input}");
        let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_response_can_be_resumed_at_every_sequence_number() {
    let hw = Server::demo();
    let reply = hw.post("/v1/responses", json!({"model": "demo", "input": "weather", "stream": true})).await;
    let all = parse_events(&reply.text);
    let path = format!("/v1/responses/{}?stream=true", all[0]["response"]["id"].as_str().unwrap());
    assert_eq!(parse_events(&hw.get(&path).await.text), all, "without a place, from the beginning");
    for place in 0..all.len() {
        let rest = parse_events(&hw.get(&format!("{path}&starting_after={place}&include[]=a&include[]=b")).await.text);
        assert_eq!(rest, all[place + 1..], "after {place}");
    }
    for (place, code) in [("999", "invalid_query"), ("-1", "invalid_query"), ("x", "invalid_query")] {
        let reply = hw.get(&format!("{path}&starting_after={place}")).await;
        assert_eq!(parse_error(&reply).1, code, "{place}");
    }
}

#[tokio::test]
async fn a_response_can_be_streamed_before_its_first_delta_and_survives_a_kill() {
    let mut hw = Server::demo();
    let begun = create_response(&hw, json!({"model": "demo", "input": "story 100", "background": true})).await;
    assert!(matches!(begun["status"].as_str().unwrap(), "queued" | "in_progress"), "{begun}");
    let path = format!("/v1/responses/{}?stream=true", begun["id"].as_str().unwrap());
    let mut open = hw.open_stream(&path).await;
    let seen = open.read_until("response.output_text.delta").await.to_owned();
    hw.kill9();
    hw.restart();
    let whole = hw.get(&path).await.text;
    let end = seen.rfind("\n\n").unwrap();
    assert!(whole.contains(seen[..end].trim_start_matches(":\n\n")), "what was seen is seen again");
    let events = parse_events(&whole);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(get_response(&hw, &begun["id"]).await, last["response"]);
}

#[tokio::test]
async fn an_approval_request_ends_its_response_and_the_answer_starts_the_next() {
    let hw = Server::demo();
    let asked = create_response(&hw, json!({"model": "demo", "input": "trade"})).await;
    let question = asked["output"].as_array().unwrap().last().unwrap();
    assert_eq!((&asked["status"], &question["type"]), (&json!("completed"), &json!("mcp_approval_request")));
    let answer = |approve: bool| {
        json!({"model": "demo", "previous_response_id": asked["id"], "input": [
            {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": approve}]})
    };
    let done = create_response(&hw, answer(true)).await;
    assert_eq!(done["id"], format!("{}_2", asked["id"].as_str().unwrap()));
    assert_eq!((&done["previous_response_id"], &done["output"][0]["type"]), (&asked["id"], &json!("mcp_call")));
    assert_eq!(create_response(&hw, answer(true)).await, done, "the same answer again is shown what came of it");
    let late = hw.post("/v1/responses", answer(false)).await;
    assert_eq!(parse_error(&late).1, "already_decided", "{}", late.text);
    assert_eq!(late.status, 409);
    // Resent with a whole history, the old answer is just history.
    let history = json!({"model": "demo", "input": [
        {"role": "user", "content": "trade"}, question,
        {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": false},
        done["output"][0], done["output"][1], {"role": "user", "content": "hello"}]});
    let next = create_response(&hw, history).await;
    assert!(output_text(&next).starts_with("Hello"), "{next}");
    assert_eq!(hw.get("/v1/threads").await.json()["data"].as_array().unwrap().len(), 1, "all of it is one thread");
}

#[tokio::test]
async fn continuing_without_answering_cancels_the_pending_calls() {
    let hw = Server::demo();
    let asked = create_response(&hw, json!({"model": "demo", "input": "trade"})).await;
    let began = Instant::now();
    let next =
        create_response(&hw, json!({"model": "demo", "previous_response_id": asked["id"], "input": "hello"})).await;
    assert!(output_text(&next).starts_with("Hello"), "{next}");
    assert!(began.elapsed() < TEST_TIMEOUT);
}

#[tokio::test]
async fn client_calls_are_answered_together_or_one_by_one() {
    let hw = Server::demo();
    let tools = json!([{"type": "function", "name": "pick", "parameters": {"type": "object", "properties": {}}}]);
    let asked = create_response(&hw, json!({"model": "demo", "input": "client", "tools": tools})).await;
    let call = &asked["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("pick")));
    assert_eq!(asked["tools"][0]["name"], "pick");
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "red"});
    // No thread is named: the resent ids identify it.
    let history = json!([{"role": "user", "content": "client"}, call, result]);
    let done = create_response(&hw, json!({"model": "demo", "input": history, "tools": tools})).await;
    assert!(output_text(&done).contains("red"), "{done}");
    let again = create_response(&hw, json!({"model": "demo", "input": history, "tools": tools})).await;
    assert_eq!(again, done, "sent again, it is the same answer");
    let stray = json!({"type": "function_call_output", "call_id": "call_1", "output": "x"});
    let open = hw.post("/v1/responses", json!({"model": "demo", "input": [stray]})).await;
    assert_eq!((open.status, parse_error(&open).1.as_str()), (400, "call_not_found"));
    let reply =
        hw.post("/v1/responses", json!({"model": "demo", "previous_response_id": done["id"], "input": [stray]})).await;
    assert_eq!((reply.status, parse_error(&reply).1.as_str()), (400, "call_not_found"));
}

#[tokio::test]
async fn two_responses_can_continue_from_one() {
    let hw = Server::demo();
    let first = create_response(&hw, json!({"model": "demo", "input": "hello"})).await;
    let on = |input: &str| json!({"model": "demo", "previous_response_id": first["id"], "input": input});
    let (one, two) = tokio::join!(create_response(&hw, on("story 40")), create_response(&hw, on("weather")));
    assert!(output_text(&two).contains("Paris") && !output_text(&one).contains("Paris"));
    assert_eq!((&one["previous_response_id"], &two["previous_response_id"]), (&first["id"], &first["id"]));
    let third =
        create_response(&hw, json!({"model": "demo", "previous_response_id": one["id"], "input": "hello"})).await;
    assert_eq!(third["status"], "completed");
}

#[tokio::test]
async fn a_conversation_holds_its_items_and_its_responses() {
    let hw = Server::demo();
    let items =
        json!([{"role": "system", "content": "Be kind."}, {"type": "message", "role": "assistant", "content": "Hi."}]);
    let made = hw.post("/v1/conversations", json!({"items": items, "metadata": {"a": "b"}})).await.json();
    let path = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    assert_eq!(hw.get(&path).await.json(), made);
    let changed = hw.post(&path, json!({"metadata": {"a": "c"}})).await.json();
    assert_eq!(changed["metadata"], json!({"a": "c"}));
    let waiting = hw.get(&format!("{path}/items?order=asc")).await.json();
    assert_eq!(waiting["data"].as_array().unwrap().len(), 2, "{waiting}");
    for input in ["hello", "weather"] {
        let done = create_response(&hw, json!({"model": "demo", "conversation": made["id"], "input": input})).await;
        assert_eq!(done["conversation"], json!({"id": made["id"]}));
    }
    let listed = hw.get(&format!("{path}/items?order=asc&limit=100")).await.json();
    let kinds = |list: &Value| -> Vec<String> {
        let items = list["data"].as_array().unwrap().iter();
        items
            .map(|item| format!("{}:{}", item["type"].as_str().unwrap(), item["role"].as_str().unwrap_or("-")))
            .collect()
    };
    assert_eq!(
        kinds(&listed),
        [
            "message:developer",
            "message:assistant",
            "message:user",
            "message:assistant",
            "message:user",
            "reasoning:-",
            "mcp_call:-",
            "message:assistant"
        ]
    );
    // Page by page, in both orders.
    for order in ["asc", "desc"] {
        let (mut paged, mut after) = (Vec::new(), String::new());
        loop {
            let page = hw.get(&format!("{path}/items?order={order}&limit=3{after}")).await.json();
            paged.extend(page["data"].as_array().unwrap().clone());
            after = format!("&after={}", page["last_id"].as_str().unwrap());
            if page["has_more"] == false {
                break;
            }
        }
        if order == "desc" {
            paged.reverse();
        }
        assert_eq!(Value::Array(paged), listed["data"], "{order}");
    }
    let one = &listed["data"][5];
    assert_eq!(hw.get(&format!("{path}/items/{}", one["id"].as_str().unwrap())).await.json(), *one);
    assert_eq!(hw.get(&format!("{path}/items/msg_1")).await.status, 404);
    let gone = hw.request(Method::DELETE, &path, &[], None).await;
    assert_eq!(gone.json()["deleted"], true);
    assert_eq!(parse_error(&hw.get(&path).await).0, 404);
}

#[tokio::test]
async fn deleted_and_unstored_responses_do_not_exist() {
    let hw = Server::demo();
    let kept = create_response(&hw, json!({"model": "demo", "input": "hello"})).await;
    let id = kept["id"].as_str().unwrap();
    let deleted = hw.request(Method::DELETE, &format!("/v1/responses/{id}"), &[], None).await.json();
    assert_eq!(deleted, json!({"id": id, "object": "response", "deleted": true}));
    let unkept = create_response(&hw, json!({"model": "demo", "input": "hello", "store": false})).await;
    for id in [id, unkept["id"].as_str().unwrap(), "resp_1", "resp_", "msg_1", "%00"] {
        for path in ["", "/input_items", "?stream=true"] {
            assert_eq!(parse_error(&hw.get(&format!("/v1/responses/{id}{path}")).await).0, 404, "{id}{path}");
        }
        assert_eq!(hw.post(&format!("/v1/responses/{id}/cancel"), json!({})).await.status, 404);
        let on = hw.post("/v1/responses", json!({"model": "demo", "input": "x", "previous_response_id": id})).await;
        assert_eq!((on.status, parse_error(&on).1.as_str()), (400, "previous_response_not_found"), "{id}");
    }
}

#[tokio::test]
async fn a_cancelled_response_stays_cancelled() {
    let hw = Server::demo();
    let begun = create_response(&hw, json!({"model": "demo", "input": "story 1000", "background": true})).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    hw.open_stream(&format!("{path}?stream=true")).await.read_until("output_text.delta").await;
    let stopped = hw.post(&format!("{path}/cancel"), json!({})).await.json();
    assert_eq!(
        (&stopped["status"], &stopped["incomplete_details"]["reason"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    assert_eq!(hw.post(&format!("{path}/cancel"), json!({})).await.json(), stopped);
    assert_eq!(hw.get(&path).await.json(), stopped);
}

#[tokio::test]
async fn the_same_key_gives_the_same_response() {
    let hw = Server::demo();
    let body = json!({"model": "demo", "input": "hello"}).to_string();
    let send = async |body: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k1")];
        hw.request(Method::POST, "/v1/responses", &headers, Some(body.into())).await
    };
    let (one, two) = (send(&body).await, send(&body).await);
    assert_eq!(one.json(), two.json());
    assert_eq!(
        parse_error(&send(&json!({"model": "demo", "input": "other"}).to_string()).await).1,
        "idempotency_key_reused"
    );
}

#[tokio::test]
async fn a_bad_request_is_refused_before_anything_starts() {
    let hw = Server::demo();
    let before = hw.count_threads_and_records().await;
    for (body, status, code, param) in [
        (json!({"input": "x"}), 400, "invalid_body", json!("model")),
        (json!({"model": "nobody", "input": "x"}), 400, "model_not_found", json!("model")),
        (json!({"model": "demo"}), 400, "no_input", Value::Null),
        (json!({"model": "demo", "input": 7}), 400, "invalid_body", json!("input")),
        (json!({"model": "demo", "input": [{"type": "message"}]}), 400, "invalid_body", json!("input[0].content")),
        (json!({"model": "demo", "input": "x", "stream": 1}), 400, "invalid_body", json!("stream")),
        (json!({"model": "demo", "input": "x", "conversation": "conv_1"}), 404, "not_found", Value::Null),
        (
            json!({"model": "demo", "input": "x", "tools": [{"type": "function", "name": "transfer_to_specialist"}]}),
            400,
            "invalid_body",
            json!("tools"),
        ),
        (
            json!({"model": "demo", "input": "x", "tools": [{"type": "function", "name": "a b"}]}),
            400,
            "invalid_body",
            json!("tools"),
        ),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            if body.get("stream").is_none() {
                body["stream"] = stream.into();
            }
            let reply = hw.post("/v1/responses", body.clone()).await;
            assert_eq!(parse_error(&reply), (status, code.to_owned(), param.clone()), "{body}: {}", reply.text);
        }
    }
    for text in ["", "[]", "{", "nul\0", "{\"model\":1,\"model\":2}"] {
        let reply = hw.post_text("/v1/responses", text).await;
        assert!(matches!(parse_error(&reply).0, 400), "{text}: {}", reply.text);
    }
    assert_eq!(parse_error(&hw.get("/v1/responses").await).0, 426);
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn agents_are_listed_as_models() {
    let hw = Server::demo();
    let list = hw.get("/v1/models").await.json();
    assert!(list["data"].as_array().unwrap().iter().any(|model| model["id"] == "demo" && model["object"] == "model"));
    assert_eq!(hw.get("/v1/models/demo").await.json()["id"], "demo");
    assert_eq!(hw.get("/v1/models/scripted/any").await.json()["id"], "scripted/any");
    assert_eq!(parse_error(&hw.get("/v1/models/nobody").await).1, "model_not_found");
}

#[tokio::test]
async fn no_user_sees_or_continues_a_response_of_another() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    let key = |user: &str| {
        let made = hw.run_cli(&["keys", "create", "--user", user]);
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (ann, ben) = (format!("Bearer {}", key("ann")), format!("Bearer {}", key("ben")));
    let ask = async |who: &str, method: Method, path: &str, body: Option<Value>| {
        let headers = [("content-type", "application/json"), ("authorization", who)];
        hw.request(method, path, &headers, body.map(|body| body.to_string().into_bytes())).await
    };
    let new = json!({"model": "demo", "input": "trade"});
    let hers = ask(&ann, Method::POST, "/v1/responses", Some(new)).await.json();
    let conversation = ask(&ann, Method::POST, "/v1/conversations", Some(json!({}))).await.json();
    let (id, conv) = (hers["id"].as_str().unwrap(), conversation["id"].as_str().unwrap());
    for path in [
        format!("/v1/responses/{id}"),
        format!("/v1/responses/{id}?stream=true"),
        format!("/v1/responses/{id}/input_items"),
        format!("/v1/conversations/{conv}"),
        format!("/v1/conversations/{conv}/items"),
    ] {
        assert_eq!(ask(&ben, Method::GET, &path, None).await.status, 404, "{path}");
        assert_eq!(ask(&ann, Method::GET, &path, None).await.status, 200, "{path}");
    }
    let on = json!({"model": "demo", "previous_response_id": id, "input": "x"});
    assert_eq!(ask(&ben, Method::POST, "/v1/responses", Some(on)).await.status, 400);
    // Her ids in his history are foreign text and answer nothing of hers.
    let key = &hers["output"].as_array().unwrap().last().unwrap()["id"];
    let answer = json!({"model": "demo", "input": [{"role": "user", "content": "hello"},
        {"type": "mcp_approval_response", "approval_request_id": key, "approve": true}, {"role": "user", "content": "hello"}]});
    assert_eq!(ask(&ben, Method::POST, "/v1/responses", Some(answer)).await.status, 200);
    let still = ask(&ann, Method::GET, "/v1/approvals?status=pending", None).await.json();
    assert_eq!(still["data"].as_array().unwrap().len(), 1, "{still}");
    assert_eq!(parse_error(&hw.get("/v1/responses/resp_1").await).0, 401);
}
