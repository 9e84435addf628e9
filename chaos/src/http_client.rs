//! A client of any node: one connection per request, closed when its stream is dropped.

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// An event longer than this is a stream that has lost its line ends.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A request to whichever node it is sent to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ApiRequest {
    pub(crate) path: String,
    /// A POST with this body; without one a GET.
    pub(crate) body: Option<Value>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) last_event_id: Option<String>,
}

impl ApiRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self { path: path.into(), body: Some(body), ..Self::default() }
    }

    /// Makes a request that may be sent again.
    pub(crate) fn with_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    fn build(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let method = if self.body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method).uri(&self.path).header(HOST, "localhost");
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(id) = &self.last_event_id {
            request = request.header("last-event-id", id);
        }
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        Ok(request.body(Full::new(body.into()))?)
    }
}

/// A response that was read to its end.
#[derive(Clone, Debug)]
pub(crate) struct ApiReply {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl ApiReply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The status and the beginning of the body, for messages.
    pub(crate) fn describe(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.body).chars().take(300).collect();
        format!("{} {text}", self.status)
    }
}

/// Sends a request and reads the response; `most` is the time for both.
pub(crate) async fn send(address: &str, request: &ApiRequest, most: Duration) -> anyhow::Result<ApiReply> {
    let exchange = async {
        let OpenConnection { response, task: _task } = open_connection(address, request.build()?).await?;
        read_reply(response).await
    };
    timeout(most, exchange).await.with_context(|| format!("no answer to {} within {most:?}", request.path))?
}

async fn read_reply(response: Response<Incoming>) -> anyhow::Result<ApiReply> {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.context("the response broke off")?.to_bytes();
    Ok(ApiReply { status, body })
}

/// The answer to a request for a stream.
pub(crate) enum StreamReply {
    Open(EventStream),
    /// Any other status than 200.
    Refused(ApiReply),
}

/// Opens a stream of server-sent events.
pub(crate) async fn open_stream(address: &str, request: &ApiRequest, most: Duration) -> anyhow::Result<StreamReply> {
    let opening = async {
        let OpenConnection { response, task } = open_connection(address, request.build()?).await?;
        if response.status().as_u16() != 200 {
            return Ok(StreamReply::Refused(read_reply(response).await?));
        }
        Ok(StreamReply::Open(EventStream { body: response.into_body(), buffer: Vec::new(), _task: task }))
    };
    timeout(most, opening).await.with_context(|| format!("no stream of {} within {most:?}", request.path))?
}

struct OpenConnection {
    response: Response<Incoming>,
    task: ConnectionTask,
}

/// The task that drives a connection; it ends with its owner.
struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn open_connection(address: &str, request: Request<Full<Bytes>>) -> anyhow::Result<OpenConnection> {
    let socket = TcpStream::connect(address).await.context("no connection")?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let task = ConnectionTask(tokio::spawn(async move {
        // The reader of the response gets the error.
        let _ = connection.await;
    }));
    let response = sender.send_request(request).await.context("no response")?;
    Ok(OpenConnection { response, task })
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamEvent {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// A stream of server-sent events. Dropping it closes the connection.
pub(crate) struct EventStream {
    body: Incoming,
    buffer: Vec<u8>,
    _task: ConnectionTask,
}

impl EventStream {
    /// The next event; none at the end of the stream. A stream that breaks off within an event is an error.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<StreamEvent>> {
        loop {
            if let Some(block) = take_block(&mut self.buffer) {
                let event = parse_event(&block);
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
                continue;
            }
            if self.buffer.len() > EVENT_BYTES_MAX {
                bail!("an event of more than {EVENT_BYTES_MAX} bytes");
            }
            match self.body.frame().await {
                None if self.buffer.is_empty() => return Ok(None),
                None => bail!("the stream broke off within an event"),
                Some(frame) => {
                    if let Ok(bytes) = frame.context("the stream broke off")?.into_data() {
                        self.buffer.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }
}

/// Takes what is in front of the first blank line.
fn take_block(buffer: &mut Vec<u8>) -> Option<String> {
    let end = buffer.windows(2).position(|pair| pair == b"\n\n")?;
    let rest = buffer.split_off(end + 2);
    let block = std::mem::replace(buffer, rest);
    Some(String::from_utf8_lossy(&block).into_owned())
}

fn parse_event(block: &str) -> StreamEvent {
    let mut event = StreamEvent::default();
    for line in block.lines() {
        let Some((field, value)) = line.split_once(':') else { continue };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => value.clone_into(&mut event.id),
            "event" => value.clone_into(&mut event.name),
            "data" => event.data.push_str(value),
            _ => {} // comments and `retry`
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_at_blank_lines_and_comments_are_not_events() {
        let mut buffer = b": hello\n\nid: a-1\nevent: x\ndata: {\"n\":1}\n\nid: a-2".to_vec();
        assert_eq!(parse_event(&take_block(&mut buffer).unwrap()), StreamEvent::default());
        let event = parse_event(&take_block(&mut buffer).unwrap());
        assert_eq!(event, StreamEvent { id: "a-1".into(), name: "x".into(), data: "{\"n\":1}".into() });
        assert_eq!(take_block(&mut buffer), None);
        assert_eq!(buffer, b"id: a-2");
    }
}
