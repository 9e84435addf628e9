//! An HTTP tool server that works for a moment or never answers, and counts its requests.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long the work takes.
const WORK_DURATION: Duration = Duration::from_millis(60);

pub(crate) struct ToolServer {
    pub(crate) address: SocketAddr,
    requests: RequestLog,
}

/// Request counters.
#[derive(Default)]
pub(crate) struct RequestCounts {
    /// Requests by idempotency key.
    pub(crate) by_idempotency_key: BTreeMap<String, usize>,
    /// Active requests.
    pub(crate) active: usize,
}

#[derive(Clone)]
struct RequestLog(Arc<watch::Sender<RequestCounts>>);

impl ToolServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let desk = RequestLog(Arc::new(watch::Sender::default()));
        let router = axum::Router::new().route("/work", post(work)).route("/hang", post(hang));
        let router = router.with_state(desk.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, requests: desk }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The counters so far.
    pub(crate) fn counts(&self) -> watch::Ref<'_, RequestCounts> {
        self.requests.0.borrow()
    }

    /// Waits until the condition holds.
    pub(crate) async fn wait_until(&self, is_so: impl FnMut(&RequestCounts) -> bool) {
        self.requests.0.subscribe().wait_for(is_so).await.expect("the site is there");
    }
}

/// An active request. A disconnect drops it.
struct ActiveToolRequest(RequestLog);

impl ActiveToolRequest {
    fn track(desk: RequestLog, headers: &HeaderMap) -> Self {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        desk.0.send_modify(|asked| {
            *asked.by_idempotency_key.entry(key).or_default() += 1;
            asked.active += 1;
        });
        Self(desk)
    }
}

impl Drop for ActiveToolRequest {
    fn drop(&mut self) {
        self.0.0.send_modify(|asked| asked.active -= 1);
    }
}

async fn work(State(desk): State<RequestLog>, headers: HeaderMap) -> Json<Value> {
    let _open = ActiveToolRequest::track(desk, &headers);
    tokio::time::sleep(WORK_DURATION).await;
    Json(json!("worked"))
}

async fn hang(State(desk): State<RequestLog>, headers: HeaderMap) -> Json<Value> {
    let _open = ActiveToolRequest::track(desk, &headers);
    std::future::pending().await
}
