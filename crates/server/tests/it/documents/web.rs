//! A site with files on it, at an address of this machine.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What is at a path.
#[derive(Clone)]
pub(crate) enum Page {
    File(&'static str, Bytes),
    Redirect(u16, String),
    /// The same as a file, once the gate is open.
    Slow(&'static str, Bytes, watch::Receiver<bool>),
}

pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    desk: Desk,
}

#[derive(Clone)]
struct Desk {
    pages: Arc<BTreeMap<String, Page>>,
    seen: watch::Sender<Seen>,
}

/// Who has asked.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    /// How often, by path.
    pub(crate) asked: BTreeMap<String, usize>,
    /// How many are being served.
    pub(crate) open: usize,
    /// How many were at once.
    pub(crate) most: usize,
}

impl Web {
    pub(crate) async fn at(address: &str, pages: impl IntoIterator<Item = (&str, Page)>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = pages.into_iter().map(|(path, page)| (path.to_owned(), page)).collect();
        let desk = Desk { pages: Arc::new(pages), seen: watch::Sender::default() };
        let app = axum::Router::new().fallback(answer).with_state(desk.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, desk }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Seen {
        self.desk.seen.borrow().clone()
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, is_so: impl FnMut(&Seen) -> bool) {
        let mut seen = self.desk.seen.subscribe();
        tokio::time::timeout(crate::harness::PATIENCE, seen.wait_for(is_so)).await.unwrap().unwrap();
    }
}

/// One that is being served, until it has what it wants or goes away.
struct Open(Desk);

impl Open {
    fn note(desk: &Desk, path: &str) -> Self {
        desk.seen.send_modify(|seen| {
            *seen.asked.entry(path.to_owned()).or_default() += 1;
            seen.open += 1;
            seen.most = seen.most.max(seen.open);
        });
        Self(desk.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.seen.send_modify(|seen| seen.open -= 1);
    }
}

async fn answer(State(desk): State<Desk>, request: Request) -> Response {
    let _open = Open::note(&desk, request.uri().path());
    let file =
        |kind: &str, bytes: &Bytes| ([("content-type", kind.to_owned())], Body::from(bytes.clone())).into_response();
    match desk.pages.get(request.uri().path()) {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(Page::File(kind, bytes)) => file(kind, bytes),
        Some(Page::Redirect(status, to)) => {
            (StatusCode::from_u16(*status).unwrap(), [("location", to.clone())]).into_response()
        }
        Some(Page::Slow(kind, bytes, gate)) => {
            let mut gate = gate.clone();
            let _gone = gate.wait_for(|open| *open).await;
            file(kind, bytes)
        }
    }
}
