//! WebSockets: `GET /ws`, a conversation as content blocks, and `GET /v1/responses`.
//!
//! This file is the handshake. `connection` sends and receives messages, and `gateway::metered_io` bounds their memory. For
//! blocks, `client_message` parses messages, and `socket` is the task of a connection, which holds one subscription and no
//! queue; `gateway::blocks_session` is the conversation, and `protocol::blocks` its format. `responses` is the other task.

mod client_message;
mod close_reason;
mod connection;
mod event_messages;
mod response_request;
mod response_turn;
pub(crate) mod responses;
mod socket;

use crate::app::App;
use crate::auth::Caller;
use crate::listen::ConnectionHandle;
use crate::problem::Problem;
use crate::query_params;
use crate::sse;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use connection::WsConnection;
use gateway::attachments::BlobUrls;
use hyper_util::rt::TokioIo;
use model::error::ErrorCode;
use socket::BlocksSocket;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// 16 bytes in base64.
const HANDSHAKE_KEY_CHARS: usize = 24;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let [] = query_params::parse_query(request.uri(), [])?;
    upgrade(app, caller, request, |parts| async move { BlocksSocket::new(parts).run().await })
}

/// A socket that was accepted.
struct SocketParts {
    app: App,
    caller: Caller,
    connection: WsConnection,
    handle: Option<ConnectionHandle>,
    blob_urls: BlobUrls,
    /// Of the handshake.
    headers: HeaderMap,
}

/// Accepts the handshake, and serves the socket in a task of its own. The socket counts as a stream.
fn upgrade<F: Future<Output = ()> + Send>(
    app: App,
    caller: Caller,
    mut request: Request,
    serve: impl FnOnce(SocketParts) -> F + Send + 'static,
) -> Result<Response, Problem> {
    let accept = accept_handshake(request.headers())?;
    let permit = sse::acquire_stream_permit(&app, &caller)?;
    let handle = request.extensions_mut().remove::<ConnectionHandle>();
    let blob_urls = request.extensions_mut().remove::<BlobUrls>().unwrap_or_default();
    let headers = std::mem::take(request.headers_mut());
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let _permit = permit;
        match upgrade.await {
            Ok(io) => {
                let connection = WsConnection::new(TokioIo::new(io), &app.limits, &caller.user).await;
                Box::pin(serve(SocketParts { app, caller, connection, handle, blob_urls, headers })).await;
            }
            Err(error) => tracing::debug!(%error, "the WebSocket upgrade failed"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// The value of `Sec-WebSocket-Accept`.
fn accept_handshake(headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    let has = |name, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let version = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    if !(version && has(header::CONNECTION, "upgrade") && has(header::UPGRADE, "websocket")) {
        let detail = "this route speaks WebSocket version 13: send an upgrade request";
        let problem = Problem::new(ErrorCode::UpgradeRequired, detail);
        return Err(problem.with_header(header::UPGRADE, "websocket").with_header(header::SEC_WEBSOCKET_VERSION, "13"));
    }
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().filter(|_| keys.next().is_none()).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let fits = key.len() == HANDSHAKE_KEY_CHARS && key.iter().all(is_base64);
    let answer = HeaderValue::try_from(derive_accept_key(key)).ok().filter(|_| fits);
    answer.ok_or_else(|| Problem::new(ErrorCode::InvalidHandshake, "Sec-WebSocket-Key must have 16 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_matches_the_example_of_the_standard() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        assert!(accept_handshake(&headers).is_err(), "without a key");
        headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        assert_eq!(accept_handshake(&headers).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
        assert!(accept_handshake(&headers).is_err(), "another version");
    }
}
