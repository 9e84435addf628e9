//! A server under load: its address, its process, and how it is asked for a stream.

use crate::stream_protocol::StreamProtocol;
use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::http::request::Builder;
use hyper::http::uri::Authority;
use serde_json::{Value, json};

/// The pace of a story that names none.
pub(crate) const STORY_INTERVAL_MS: u64 = 20;

#[derive(Clone, Debug)]
pub(crate) struct LoadTarget {
    /// The row of the table.
    pub(crate) name: &'static str,
    pub(crate) authority: Authority,
    /// The process whose CPU time and memory are counted.
    pub(crate) pid: u32,
    pub(crate) protocol: StreamProtocol,
    /// The model or agent that is asked.
    pub(crate) model: &'static str,
}

/// How a stream is requested.
#[derive(Clone, Debug)]
pub(crate) enum StreamRequest {
    Http(Box<Request<Full<Bytes>>>),
    /// The message on a new socket.
    WebSocket(String),
}

impl From<Request<Full<Bytes>>> for StreamRequest {
    fn from(request: Request<Full<Bytes>>) -> Self {
        Self::Http(Box::new(request))
    }
}

impl LoadTarget {
    /// A request whose response is the whole stream.
    pub(crate) fn stream_request(&self, input: &str) -> anyhow::Result<StreamRequest> {
        let body = self.protocol.stream_body(self.model, input);
        match self.protocol {
            StreamProtocol::Blocks => Ok(StreamRequest::WebSocket(body.to_string())),
            _ => self.post(&body).map(StreamRequest::from),
        }
    }

    /// A request that starts a run and returns at once.
    pub(crate) fn start_request(&self, input: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        match self.protocol {
            StreamProtocol::Tasks => self.post(&json!({"model": self.model, "input": input})),
            StreamProtocol::Responses => self.post(&json!({"model": self.model, "input": input, "background": true})),
            StreamProtocol::Chat | StreamProtocol::Messages | StreamProtocol::Blocks => {
                anyhow::bail!("these runs are read by who starts them")
            }
        }
    }

    /// A request that follows a run from its first event.
    pub(crate) fn follow_request(&self, id: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        match self.protocol {
            StreamProtocol::Tasks => self.get(&format!("/v1/tasks/{id}/events")),
            StreamProtocol::Responses => self.get(&format!("/v1/responses/{id}?stream=true")),
            StreamProtocol::Chat | StreamProtocol::Messages | StreamProtocol::Blocks => {
                anyhow::bail!("these runs are read by who starts them")
            }
        }
    }

    pub(crate) fn get(&self, uri: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        Ok(self.with_host(Request::get(uri)).header(ACCEPT, "text/event-stream").body(Full::default())?)
    }

    pub(crate) fn post(&self, body: &Value) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = self.with_host(Request::post(self.protocol.path())).header(CONTENT_TYPE, "application/json");
        request.body(Full::new(body.to_string().into())).context("request")
    }

    fn with_host(&self, request: Builder) -> Builder {
        request.header(HOST, self.authority.as_str()).header("anthropic-version", "2023-06-01")
    }
}

/// The input that makes the mock and the scripted model send `deltas` deltas at this pace; 0 is full speed.
pub(crate) fn story_input(deltas: u32, interval_ms: u64) -> String {
    match interval_ms {
        0 => format!("story {deltas} fast"),
        STORY_INTERVAL_MS => format!("story {deltas}"),
        _ => format!("story {deltas} every {interval_ms}"),
    }
}
