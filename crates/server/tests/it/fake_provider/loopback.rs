//! A listener that answers each request with a list of actions. One request per connection; the body ends with it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The chunk size of large writes.
const WRITE_BYTES: usize = 32 * 1024;

/// A request.
#[derive(Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
    /// The body as it was sent.
    pub(crate) text: String,
}

/// One action of an upstream.
pub(crate) enum ResponseAction {
    Send(Vec<u8>),
    /// Writes all of these as fast as the client reads.
    SendAll(Box<dyn Iterator<Item = Vec<u8>> + Send>),
    /// Waits until everything so far has been sent.
    Pause(Duration),
    /// Waits until the gate opens.
    Gate(watch::Receiver<bool>),
    /// Sends nothing until the client disconnects.
    WaitForClose,
    /// Resets the connection.
    Reset,
}

/// The listener; it ends with the test's runtime.
pub(crate) struct Loopback {
    pub(crate) address: SocketAddr,
}

impl Loopback {
    pub(crate) async fn start(answer: impl Fn(ReceivedRequest) -> Vec<ResponseAction> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                // A client that disconnects early is no failure.
                tokio::spawn(async move { serve_connection(stream, answer.as_ref()).await.unwrap_or_default() });
            }
        });
        Self { address }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// The head of a stream.
pub(crate) fn stream_head() -> ResponseAction {
    ResponseAction::Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec())
}

/// A complete response.
pub(crate) fn full_response(status: &str, headers: &str, body: &str) -> ResponseAction {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    ResponseAction::Send(text.into_bytes())
}

async fn serve_connection(
    mut stream: TcpStream,
    answer: &(impl Fn(ReceivedRequest) -> Vec<ResponseAction> + ?Sized),
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(asked) = read_request(&mut stream).await? else { return Ok(()) };
    for act in answer(asked) {
        match act {
            ResponseAction::Send(bytes) => stream.write_all(&bytes).await?,
            ResponseAction::SendAll(pieces) => write_chunks(&mut stream, pieces).await?,
            ResponseAction::Pause(time) => tokio::time::sleep(time).await,
            ResponseAction::Gate(mut gate) => {
                let _gone = gate.wait_for(|open| *open).await;
            }
            ResponseAction::WaitForClose => {
                let _hung_up = stream.read(&mut [0]).await;
            }
            ResponseAction::Reset => {
                // No linger: the client gets a reset instead of an end.
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
                return Ok(());
            }
        }
    }
    stream.shutdown().await
}

async fn write_chunks(stream: &mut TcpStream, pieces: impl Iterator<Item = Vec<u8>>) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(&piece);
        if buffer.len() >= WRITE_BYTES {
            stream.write_all(&buffer).await?;
            buffer.clear();
        }
    }
    stream.write_all(&buffer).await
}

/// Reads one request. `None` when the client only probed the port.
async fn read_request(stream: &mut TcpStream) -> std::io::Result<Option<ReceivedRequest>> {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let body = bytes.split_off(end + 4);
        break (String::from_utf8(bytes).unwrap(), body);
    };
    let mut lines = head.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = body;
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(ReceivedRequest {
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        text: String::from_utf8_lossy(&body).into_owned(),
    }))
}
