//! A fake service on loopback that answers every request with the next scripted response.

use model::model_turn::{ModelEvent, ModelFailure, ModelRequest};
use model::ports::ModelClient;
use providers::http::{
    HttpProvider, HttpProviderSettings, HttpTimeouts, ProviderClient, ResolvedText, ResponseLimits, SecretResolver,
    UpstreamDialect, Url,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use futures_util::StreamExt;

/// Longer than anything here takes; a test that hangs reports where.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const KEY: &str = "sk-0123456789abcdefghijklmnop";

/// One action of the service.
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Waits until the client disconnects.
    Hold,
    /// Sends this repeatedly until the socket blocks or closes, and reports the number of bytes.
    Flood(Vec<u8>),
}

/// The requests that the service received.
#[derive(Debug)]
pub(crate) enum Seen {
    Request { head: String, body: Value },
    HungUp,
    Taken(usize),
}

pub(crate) struct Service {
    pub(crate) address: String,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Service {
    pub(crate) async fn start(answers: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tell, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for answer in answers {
                let (socket, _) = listener.accept().await.unwrap();
                serve(socket, answer, &tell).await;
            }
        });
        Self { address, seen }
    }

    pub(crate) async fn seen(&mut self) -> Option<Seen> {
        tokio::time::timeout(PATIENCE, self.seen.recv()).await.unwrap()
    }

    pub(crate) async fn request(&mut self) -> (String, Value) {
        match self.seen().await {
            Some(Seen::Request { head, body }) => (head, body),
            other => panic!("no request: {other:?}"),
        }
    }

    pub(crate) fn settings(&self, kind: UpstreamDialect) -> HttpProviderSettings {
        settings(kind, &format!("http://{}/v1", self.address))
    }
}

async fn serve(mut socket: TcpStream, answer: Vec<Act>, tell: &mpsc::UnboundedSender<Seen>) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            break (head.clone(), length.unwrap().parse::<usize>().unwrap());
        }
    };
    while bytes.len() < head.len() + 4 + length {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
    }
    let body = serde_json::from_slice(&bytes[head.len() + 4..]).unwrap();
    tell.send(Seen::Request { head, body }).ok();
    for act in answer {
        match act {
            Act::Send(bytes) => {
                // The client may disconnect early.
                socket.write_all(&bytes).await.ok();
                socket.flush().await.ok();
            }
            Act::Hold => {
                let mut rest = Vec::new();
                socket.read_to_end(&mut rest).await.ok();
                tell.send(Seen::HungUp).ok();
            }
            Act::Flood(bytes) => {
                let mut taken = 0;
                while let Ok(Ok(count)) = tokio::time::timeout(Duration::from_millis(500), socket.write(&bytes)).await {
                    taken += count;
                    if taken > FLOOD_BYTES {
                        break;
                    }
                }
                tell.send(Seen::Taken(taken)).ok();
            }
        }
    }
}

/// More than all buffers between two sockets.
pub(crate) const FLOOD_BYTES: usize = 64 * 1024 * 1024;

pub(crate) fn send(text: impl AsRef<[u8]>) -> Act {
    Act::Send(text.as_ref().to_vec())
}

/// The head of a response that ends with the connection.
pub(crate) fn head(status: &str, media_type: &str, more: &str) -> Act {
    send(format!("HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\n{more}connection: close\r\n\r\n"))
}

pub(crate) fn stream() -> Act {
    head("200 OK", "text/event-stream; charset=utf-8", "")
}

/// A complete response.
pub(crate) fn answer(status: &str, media_type: &str, more: &str, body: &str) -> Vec<Act> {
    vec![head(status, media_type, more), send(body)]
}

pub(crate) fn settings(kind: UpstreamDialect, base_url: &str) -> HttpProviderSettings {
    HttpProviderSettings {
        name: "up".to_owned(),
        dialect: kind,
        base_url: Url::parse(base_url).unwrap(),
        api_key_ref: Some("env:KEY".to_owned()),
        headers: [("x-team".to_owned(), "env:TEAM".to_owned())].into(),
        options: Arc::default(),
        takes_image_urls: true,
        timeouts: HttpTimeouts { first_byte: PATIENCE, idle: PATIENCE, total: PATIENCE },
        limits: ResponseLimits::default(),
        cassette_dir: None,
    }
}

/// Resolves `env:KEY` and `env:TEAM`, and nothing else.
pub(crate) fn lookup() -> SecretResolver {
    Arc::new(|text| {
        let value = match text.as_str() {
            "env:KEY" => Ok(KEY),
            "env:TEAM" => Ok("rivers"),
            _ => Err(format!("the secret `{text}` is not set")),
        };
        let filled = value.map(|value| ResolvedText { text: value.to_owned(), secret_values: vec![value.to_owned()] });
        Box::pin(std::future::ready(filled))
    })
}

pub(crate) fn upstream(settings: HttpProviderSettings) -> HttpProvider {
    HttpProvider::new(settings, ProviderClient::new(Duration::from_millis(300)).unwrap(), lookup())
}

/// All events of a turn: exactly one terminal event, and it is the last.
pub(crate) async fn turn(settings: HttpProviderSettings, request: ModelRequest) -> Vec<ModelEvent> {
    let events = upstream(settings).stream_turn(request).collect::<Vec<_>>();
    let events = tokio::time::timeout(PATIENCE, events).await.expect("the turn ends");
    let ends = events.iter().filter(|event| !matches!(event, ModelEvent::Delta(_))).count();
    assert_eq!(ends, 1, "{events:?}");
    assert!(!matches!(events.last(), Some(ModelEvent::Delta(_))), "{events:?}");
    assert!(!format!("{events:?}").contains(KEY), "{events:?}");
    events
}

pub(crate) async fn failure(settings: HttpProviderSettings, request: ModelRequest) -> ModelFailure {
    match turn(settings, request).await.pop() {
        Some(ModelEvent::Failed(failure)) => failure,
        other => panic!("it did not fail: {other:?}"),
    }
}
