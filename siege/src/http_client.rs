//! A client of the server: one connection per request, so that nobody profits from a connection that was accepted before
//! an attack began.

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// An event longer than this is a stream that has lost its line ends.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A user of the server, with the API key and the server's address.
#[derive(Clone, Debug)]
pub(crate) struct ApiUser {
    pub(crate) name: &'static str,
    pub(crate) key: String,
    pub(crate) address: String,
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct ApiReply {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl ApiReply {
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{}: {}", self.status, self.text()))
    }

    /// The beginning of the body, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(300).collect()
    }

    /// Fails unless the response has this status.
    pub(crate) fn expect_status(self, status: u16) -> anyhow::Result<Self> {
        if self.status != status {
            bail!("status {} instead of {status}: {}", self.status, self.text());
        }
        Ok(self)
    }
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamEvent {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

impl ApiUser {
    pub(crate) async fn get(&self, path: &str, most: Duration) -> anyhow::Result<ApiReply> {
        self.send(Method::GET, path, Bytes::new(), most).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value, most: Duration) -> anyhow::Result<ApiReply> {
        self.send(Method::POST, path, body.to_string().into(), most).await
    }

    /// Sends a request and reads the response; `most` is the time for both.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        most: Duration,
    ) -> anyhow::Result<ApiReply> {
        let exchange = async {
            let connection = open_connection(&self.address, self.request(method, path, body)?).await?;
            let status = connection.response.status().as_u16();
            let body = connection.response.into_body().collect().await.context("the response broke off")?.to_bytes();
            anyhow::Ok(ApiReply { status, body })
        };
        timeout(most, exchange).await.with_context(|| format!("no answer to {path} within {most:?}"))?
    }

    /// Starts a run and follows its stream.
    pub(crate) async fn start_stream(&self, body: &Value) -> anyhow::Result<EventStream> {
        EventStream::open(&self.address, self.request(Method::POST, "/v1/tasks", body.to_string().into())?).await
    }

    /// Follows a stream from a cursor, or from its beginning.
    pub(crate) async fn follow(&self, path: &str, after: Option<&str>) -> anyhow::Result<EventStream> {
        let mut request = self.request(Method::GET, path, Bytes::new())?;
        if let Some(after) = after {
            request.headers_mut().insert("last-event-id", after.parse()?);
        }
        EventStream::open(&self.address, request).await
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = Request::builder().method(method).uri(path).header(HOST, &self.address);
        let request = request.header(AUTHORIZATION, format!("Bearer {}", self.key));
        let kind = if path.contains("attachments") { "text/plain" } else { "application/json" };
        Ok(request.header(CONTENT_TYPE, kind).body(Full::new(body))?)
    }
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

/// A stream of server-sent events. Dropping it closes the connection.
pub(crate) struct EventStream {
    body: Incoming,
    buffer: Vec<u8>,
    _task: ConnectionTask,
}

impl EventStream {
    async fn open(address: &str, request: Request<Full<Bytes>>) -> anyhow::Result<Self> {
        let OpenConnection { response, task } = open_connection(address, request).await?;
        let status = response.status().as_u16();
        if status != 200 {
            let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            ApiReply { status, body }.expect_status(200)?;
            bail!("no stream");
        }
        Ok(Self { body: response.into_body(), buffer: Vec::new(), _task: task })
    }

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
