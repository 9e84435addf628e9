//! Repeated requests are executed once.

use crate::harness::{Reply, Server, parse_frames};
use reqwest::Method;
use serde_json::{Value, json};

async fn post(hw: &Server, path: &str, key: &str, body: &Value) -> Reply {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    hw.request(Method::POST, path, &headers, Some(body.to_string().into_bytes())).await
}

#[tokio::test]
async fn the_same_idempotency_key_gives_the_same_run() {
    let hw = Server::demo();
    let body = json!({"model": "demo", "input": "story 5 fast"});
    let first = post(&hw, "/v1/tasks", "k1", &body).await.json();
    let id = first["task_id"].as_str().unwrap();
    // In any formatting.
    let spelt = " { \"input\" : \"story 5 fast\", \"model\":\"demo\" } ";
    let headers = [("content-type", "application/json"), ("idempotency-key", "k1")];
    let again = hw.request(Method::POST, "/v1/tasks", &headers, Some(spelt.into())).await;
    assert_eq!((again.status, again.json()["task_id"].as_str()), (202, Some(id)));
    hw.wait_ended(id).await;
    assert_eq!(post(&hw, "/v1/tasks", "k1", &body).await.json()["task_id"], id);
    let other = post(&hw, "/v1/tasks", "k1", &json!({"model": "demo", "input": "else"})).await;
    assert_eq!(other.problem(), (409, "idempotency_key_reused".to_owned()));
    assert_ne!(post(&hw, "/v1/tasks", "k2", &body).await.json()["task_id"], id);
}

#[tokio::test]
async fn a_lost_stream_is_replayed_from_its_start() {
    let mut hw = Server::demo();
    let body = json!({"model": "demo", "input": "weather", "stream": true});
    let first = post(&hw, "/v1/tasks", "k", &body).await;
    let again = post(&hw, "/v1/tasks", "k", &body).await;
    assert_eq!((again.status, parse_frames(&again.text)), (200, parse_frames(&first.text)));
    assert_eq!(again.header("location"), first.header("location"));
    hw.kill9();
    hw.restart();
    let later = post(&hw, "/v1/tasks", "k", &body).await;
    assert_eq!(parse_frames(&later.text), parse_frames(&first.text), "also after a restart");
}

#[tokio::test]
async fn a_busy_thread_accepts_a_repeated_request() {
    let hw = Server::demo();
    let first = hw.start_run("story 5000").await;
    let thread = first["thread_id"].as_str().unwrap();
    hw.post(&format!("/v1/tasks/{}/cancel", first["task_id"].as_str().unwrap()), json!({})).await;
    hw.wait_ended(first["task_id"].as_str().unwrap()).await;
    for on_busy in ["reject", "interrupt"] {
        let body = json!({"model": "demo", "input": "story 5000", "thread_id": thread, "on_busy": on_busy});
        let begun = post(&hw, "/v1/tasks", on_busy, &body).await;
        assert_eq!(begun.status, 202, "{}", begun.text);
        let id = begun.json()["task_id"].as_str().unwrap().to_owned();
        hw.open_stream(&format!("/v1/tasks/{id}/events")).await.read_until("task.text.delta").await;
        let again = post(&hw, "/v1/tasks", on_busy, &body).await;
        assert_eq!((again.status, again.json()["task_id"].as_str()), (202, Some(id.as_str())));
        assert_eq!(hw.get(&format!("/v1/tasks/{id}")).await.json()["status"], "running");
        hw.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
        hw.wait_ended(&id).await;
    }
}

#[tokio::test]
async fn concurrent_requests_with_one_key_make_one_run() {
    let hw = Server::demo();
    let body = json!({"model": "demo", "input": "story 3 fast"});
    let replies = futures_util::future::join_all((0..10).map(|_| post(&hw, "/v1/tasks", "k", &body))).await;
    let mut ids: Vec<String> =
        replies.iter().map(|reply| reply.json()["task_id"].as_str().unwrap().to_owned()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn cancels_and_inputs_are_idempotent_too() {
    let hw = Server::demo();
    let task = hw.start_run("story 5000").await;
    let id = task["task_id"].as_str().unwrap();
    let cancel = format!("/v1/tasks/{id}/cancel");
    assert_eq!(post(&hw, &cancel, "c", &json!({})).await.status, 202);
    hw.wait_ended(id).await;
    assert_eq!(post(&hw, &cancel, "c", &json!({})).await.status, 202, "asked again, answered again");
    assert_eq!(
        post(&hw, &cancel, "c", &json!({"mode": "immediate"})).await.problem(),
        (409, "idempotency_key_reused".to_owned())
    );
    assert_eq!(post(&hw, &cancel, "d", &json!({})).await.problem(), (409, "already_ended".to_owned()));
    let input = format!("/v1/tasks/{id}/input");
    let next = post(&hw, &input, "c", &json!({"input": "story 1 fast"})).await;
    let again = post(&hw, &input, "c", &json!({"input": "story 1 fast"})).await;
    assert_eq!((next.status, next.json()["task_id"].clone()), (202, again.json()["task_id"].clone()));
    assert_eq!(hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn invalid_idempotency_keys_are_refused() {
    let hw = Server::demo();
    let body = json!({"model": "demo", "input": "hi"});
    for key in ["", "é", "a\tb", &"x".repeat(256), &"x".repeat(10_000)] {
        let reply = post(&hw, "/v1/tasks", key, &body).await;
        assert_eq!(reply.problem(), (400, "invalid_idempotency_key".to_owned()), "{key:.20}");
    }
    assert_eq!(post(&hw, "/v1/tasks", &"x".repeat(255), &body).await.status, 202);
}
