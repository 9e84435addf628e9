//! Somebody behind an address: works for a moment or never answers, and knows who has asked how often.

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
const WORK: Duration = Duration::from_millis(60);

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    desk: Desk,
}

/// Who has asked.
#[derive(Default)]
pub(crate) struct Asked {
    /// How often, by idempotency key.
    pub(crate) calls: BTreeMap<String, usize>,
    /// How many are being served.
    pub(crate) open: usize,
}

#[derive(Clone)]
struct Desk(Arc<watch::Sender<Asked>>);

impl Site {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Desk(Arc::new(watch::Sender::default()));
        let router = axum::Router::new().route("/work", post(work)).route("/hang", post(hang));
        let router = router.with_state(desk.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, desk }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Who has asked up to now.
    pub(crate) fn asked(&self) -> watch::Ref<'_, Asked> {
        self.desk.0.borrow()
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, is_so: impl FnMut(&Asked) -> bool) {
        self.desk.0.subscribe().wait_for(is_so).await.expect("the site is there");
    }
}

/// One request that is being served. Who hangs up drops it.
struct Open(Desk);

impl Open {
    fn note(desk: Desk, headers: &HeaderMap) -> Self {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        desk.0.send_modify(|asked| {
            *asked.calls.entry(key).or_default() += 1;
            asked.open += 1;
        });
        Self(desk)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.send_modify(|asked| asked.open -= 1);
    }
}

async fn work(State(desk): State<Desk>, headers: HeaderMap) -> Json<Value> {
    let _open = Open::note(desk, &headers);
    tokio::time::sleep(WORK).await;
    Json(json!("worked"))
}

async fn hang(State(desk): State<Desk>, headers: HeaderMap) -> Json<Value> {
    let _open = Open::note(desk, &headers);
    std::future::pending().await
}
