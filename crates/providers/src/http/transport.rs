//! HTTP/1.1 connections to services.
//!
//! A connection has no task of its own: the turn that reads the response polls it. With a task per connection, as in general
//! HTTP clients, every chunk would cost two more wake-ups, one for the chunk and one to ask for the next; for a fast model that
//! was 40 % of the CPU time of a delta.
//!
//! `connector` opens connections, directly or through the proxy of the environment; `connection` sends a request and reads the
//! response; `idle_connections` keeps connections for the next turn.

mod connection;
mod connector;
mod idle_connections;

pub(super) use connection::ResponseBody;

use bytes::Bytes;
use connection::{Connection, SendError};
use connector::{ConnectError, Connector};
use http::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body_util::Full;
use idle_connections::IdleConnections;
use model::ports::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const USER_AGENT_VALUE: HeaderValue = HeaderValue::from_static(concat!("headwater/", env!("CARGO_PKG_VERSION")));

/// Why a request has no response, or the response no end.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransportError {
    #[error("the connection was not accepted in time")]
    ConnectTimeout,
    #[error("cannot connect")]
    Connect(#[from] ConnectError),
    #[error("the connection was lost")]
    Lost(#[from] hyper::Error),
    #[error("the request is invalid")]
    InvalidRequest(#[from] http::Error),
}

/// The connections to all services. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    connector: Arc<Connector>,
    idle: Arc<IdleConnections>,
    connect_timeout: Duration,
}

impl Transport {
    pub(super) fn new(connect_timeout: Duration) -> Result<Self, tokio_rustls::rustls::Error> {
        Ok(Self { connector: Arc::new(Connector::new()?), idle: Arc::default(), connect_timeout })
    }

    /// Sends a request. A connection that the service closed while it was idle is replaced by another one, if nothing of the
    /// request was sent on it.
    pub(super) fn post<'a>(
        &'a self,
        uri: &'a Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, TransportError>> {
        let request = self.build_request(uri, headers, body);
        Box::pin(async move { self.send(uri, request?).await })
    }

    async fn send(
        &self,
        uri: &Uri,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        while let Some(connection) = self.idle.take(uri) {
            match connection.send(request, &self.idle, uri).await {
                Ok(response) => return Ok(response),
                Err(SendError { unsent: Some(unsent), .. }) => request = *unsent,
                Err(SendError { error, .. }) => return Err(error.into()),
            }
        }
        let connecting = timeout(self.connect_timeout, self.connector.connect(uri)).await;
        let stream = connecting.map_err(|_| TransportError::ConnectTimeout)??;
        let connection = Connection::open(stream).await?;
        connection.send(request, &self.idle, uri).await.map_err(|failed| failed.error.into())
    }

    fn build_request(&self, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        let forwarding = self.connector.forwarding_proxy(uri);
        let target = match &forwarding {
            Some(_) => uri.clone(),
            // A service expects the path only.
            None => {
                Uri::from(uri.path_and_query().cloned().unwrap_or_else(|| http::uri::PathAndQuery::from_static("/")))
            }
        };
        let mut request = Request::builder().method(Method::POST).uri(target).body(Full::new(body))?;
        *request.headers_mut() = headers.clone();
        let (host, default_port) = (uri.host().unwrap_or_default(), default_port(uri));
        let host = match uri.port_u16().filter(|port| *port != default_port) {
            Some(port) => HeaderValue::try_from(format!("{host}:{port}"))?,
            None => HeaderValue::try_from(host)?,
        };
        // What the operator configures comes first.
        request.headers_mut().entry(HOST).or_insert(host);
        request.headers_mut().entry(USER_AGENT).or_insert(USER_AGENT_VALUE);
        if let Some(auth) = forwarding.as_ref().and_then(|proxy| proxy.basic_auth()) {
            request.headers_mut().insert(http::header::PROXY_AUTHORIZATION, auth.clone());
        }
        Ok(request)
    }
}

fn default_port(uri: &Uri) -> u16 {
    if connector::is_https(uri) { 443 } else { 80 }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
