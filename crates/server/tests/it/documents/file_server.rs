//! A file server on loopback.

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

/// The response for a path.
#[derive(Clone)]
pub(crate) enum PageResponse {
    File(&'static str, Bytes),
    Redirect(u16, String),
    /// The same as a file, once the gate is open.
    Slow(&'static str, Bytes, watch::Receiver<bool>),
}

pub(crate) struct FileServer {
    pub(crate) address: SocketAddr,
    state: FileServerState,
}

#[derive(Clone)]
struct FileServerState {
    pages: Arc<BTreeMap<String, PageResponse>>,
    access: watch::Sender<AccessCounts>,
}

/// Access counters.
#[derive(Clone, Default)]
pub(crate) struct AccessCounts {
    /// Requests by path.
    pub(crate) by_path: BTreeMap<String, usize>,
    /// Active requests.
    pub(crate) active: usize,
    /// The highest number of concurrent requests.
    pub(crate) active_max: usize,
}

impl FileServer {
    pub(crate) async fn start(address: &str, pages: impl IntoIterator<Item = (&str, PageResponse)>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = pages.into_iter().map(|(path, page)| (path.to_owned(), page)).collect();
        let desk = FileServerState { pages: Arc::new(pages), access: watch::Sender::default() };
        let app = axum::Router::new().fallback(handle_request).with_state(desk.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, state: desk }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn access_counts(&self) -> AccessCounts {
        self.state.access.borrow().clone()
    }

    /// Waits until the condition holds.
    pub(crate) async fn wait_until(&self, is_so: impl FnMut(&AccessCounts) -> bool) {
        let mut seen = self.state.access.subscribe();
        tokio::time::timeout(crate::harness::TEST_TIMEOUT, seen.wait_for(is_so)).await.unwrap().unwrap();
    }
}

/// An active request, until it is answered or disconnected.
struct ActiveFileRequest(FileServerState);

impl ActiveFileRequest {
    fn track(desk: &FileServerState, path: &str) -> Self {
        desk.access.send_modify(|seen| {
            *seen.by_path.entry(path.to_owned()).or_default() += 1;
            seen.active += 1;
            seen.active_max = seen.active_max.max(seen.active);
        });
        Self(desk.clone())
    }
}

impl Drop for ActiveFileRequest {
    fn drop(&mut self) {
        self.0.access.send_modify(|seen| seen.active -= 1);
    }
}

async fn handle_request(State(desk): State<FileServerState>, request: Request) -> Response {
    let _open = ActiveFileRequest::track(&desk, request.uri().path());
    let file =
        |kind: &str, bytes: &Bytes| ([("content-type", kind.to_owned())], Body::from(bytes.clone())).into_response();
    match desk.pages.get(request.uri().path()) {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(PageResponse::File(kind, bytes)) => file(kind, bytes),
        Some(PageResponse::Redirect(status, to)) => {
            (StatusCode::from_u16(*status).unwrap(), [("location", to.clone())]).into_response()
        }
        Some(PageResponse::Slow(kind, bytes, gate)) => {
            let mut gate = gate.clone();
            let _gone = gate.wait_for(|open| *open).await;
            file(kind, bytes)
        }
    }
}
