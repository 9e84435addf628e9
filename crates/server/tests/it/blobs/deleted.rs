//! A thread is deleted while bytes for it are being uploaded to a bucket.

use super::{blob_path, delete, image_part, str_field, unique_png};
use crate::documents::file_server::{FileServer, PageResponse};
use crate::harness::{Reply, Server, TEST_TIMEOUT};
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A bucket that accepts nothing before it is released.
#[derive(Clone)]
struct Bucket {
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    asked: watch::Sender<bool>,
    taken: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Bucket {
    async fn begin() -> (Self, String) {
        let bucket = Self {
            files: Arc::default(),
            asked: watch::Sender::new(false),
            taken: watch::Sender::new(false),
            open: watch::Sender::new(false),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = axum::Router::new().fallback(answer).with_state(bucket.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (bucket, format!("http://{address}"))
    }

    fn is_empty(&self) -> bool {
        self.files.lock().unwrap().is_empty()
    }
}

/// Waits until the condition holds.
async fn is_so(what: &watch::Sender<bool>) {
    tokio::time::timeout(TEST_TIMEOUT, what.subscribe().wait_for(|so| *so)).await.unwrap().unwrap();
}

async fn answer(State(bucket): State<Bucket>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    match method {
        Method::PUT => {
            bucket.asked.send_replace(true);
            is_so(&bucket.open).await;
            bucket.files.lock().unwrap().insert(path, body.to_vec());
            bucket.taken.send_replace(true);
            [("etag", "\"1\"")].into_response()
        }
        Method::DELETE => {
            bucket.files.lock().unwrap().remove(&path);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Deletes the thread once an upload for it has started, and lets the upload finish.
async fn deleted_meanwhile(hw: &Server, bucket: &Bucket, thread: &str, bringing: impl Future<Output = Option<Reply>>) {
    let deleting = async {
        is_so(&bucket.asked).await;
        delete(hw, thread).await;
        bucket.open.send_replace(true);
        is_so(&bucket.taken).await;
    };
    let (brought, ()) = tokio::join!(bringing, deleting);
    if let Some(reply) = brought {
        assert_eq!(reply.status, 404, "{}", reply.text);
    }
    hw.wait_until("nothing of it stays", async || {
        bucket.is_empty() && hw.get(&blob_path(&unique_png("late"))).await.status == 404
    })
    .await;
}

#[tokio::test]
async fn input_to_a_run_of_a_deleted_thread_leaves_no_bytes() {
    let (bucket, endpoint) = Bucket::begin().await;
    let hw = Server::with_bucket(&endpoint, "");
    let task = hw.create_task(json!({"model": "demo", "input": "story 100000"})).await;
    let path = format!("/v1/tasks/{}/input", str_field(&task, "task_id"));
    let bringing = async { Some(hw.post(&path, json!({"input": [image_part(&unique_png("late"))]})).await) };
    deleted_meanwhile(&hw, &bucket, str_field(&task, "thread_id"), bringing).await;
}

/// A run that waits for a client tool.
async fn waiting(hw: &Server) -> Value {
    let tools = json!([{"name": "shoot", "description": "Takes a picture.", "parameters": {"type": "object"}}]);
    let reply = hw.post("/v1/tasks", json!({"model": "demo", "input": "client", "tools": tools, "wait": true})).await;
    assert_eq!(reply.json()["status"], "paused", "{}", reply.text);
    reply.json()
}

#[tokio::test]
async fn a_tool_result_for_a_deleted_thread_leaves_no_bytes() {
    let (bucket, endpoint) = Bucket::begin().await;
    let hw = Server::with_bucket(&endpoint, "");
    let task = waiting(&hw).await;
    let path = format!("/v1/tasks/{}/tool_results", str_field(&task, "task_id"));
    let given = json!([{"call_id": task["pending"][0]["call_id"], "content": [image_part(&unique_png("late"))]}]);
    let bringing = async { Some(hw.post(&path, given).await) };
    deleted_meanwhile(&hw, &bucket, str_field(&task, "thread_id"), bringing).await;
}

#[tokio::test]
async fn a_client_result_for_a_deleted_thread_leaves_no_bytes() {
    let (bucket, endpoint) = Bucket::begin().await;
    let hw = Server::with_bucket(&endpoint, "");
    let task = waiting(&hw).await;
    let url = super::data_url("image/png", &unique_png("late"));
    let output = json!([{"type": "input_image", "image_url": url}]);
    let item = json!({"type": "function_call_output", "call_id": task["pending"][0]["call_id"], "output": output});
    let previous = str_field(&task, "task_id").replace("task_", "resp_");
    let body = json!({"model": "demo", "previous_response_id": previous, "input": [item]});
    let bringing = async { Some(hw.post("/v1/responses", body).await) };
    deleted_meanwhile(&hw, &bucket, str_field(&task, "thread_id"), bringing).await;
}

#[tokio::test]
async fn a_file_read_for_a_deleted_thread_leaves_no_bytes() {
    let (bucket, endpoint) = Bucket::begin().await;
    let page = PageResponse::File("image/png", unique_png("late").into());
    let web = FileServer::start("127.0.0.1:0", [("/late.png", page)]).await;
    let fetch = format!("[fetch]\nallow_private = true\nports = [{}]", web.address.port());
    let hw = Server::with_bucket(&endpoint, &fetch);
    let file = json!({"type": "file", "file": {"url": web.url("/late.png")}});
    let task = hw.create_task(json!({"model": "demo", "input": [file]})).await;
    deleted_meanwhile(&hw, &bucket, str_field(&task, "thread_id"), async { None }).await;
}
