//! A server under load: its address, its process and its API.

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::http::request::Builder;
use hyper::http::uri::Authority;
use serde_json::json;

/// The only pace of `story N` besides full speed.
const STORY_INTERVAL_MS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TargetApi {
    /// `POST /stream?count=N&interval_ms=M`, the mock's own, directly or through a proxy.
    Stream,
    /// `POST /v1/tasks` with `story N`, Headwater's.
    Tasks,
}

#[derive(Clone, Debug)]
pub(crate) struct LoadTarget {
    pub(crate) name: &'static str,
    pub(crate) authority: Authority,
    /// The process whose CPU time and memory are counted.
    pub(crate) pid: u32,
    pub(crate) dialect: TargetApi,
}

impl LoadTarget {
    /// A request whose response is the whole stream.
    pub(crate) fn stream_request(&self, deltas: u32, interval_ms: u64) -> anyhow::Result<Request<Full<Bytes>>> {
        match self.dialect {
            TargetApi::Stream => {
                let uri = format!("/stream?count={deltas}&interval_ms={interval_ms}");
                Ok(self.with_host(Request::post(uri)).header(ACCEPT, "text/event-stream").body(Full::default())?)
            }
            TargetApi::Tasks => {
                let body = json!({"model": "bench", "input": story_input(deltas, interval_ms)?, "stream": true});
                self.create_task_request(&body)
            }
        }
    }

    /// A request that starts a task and returns at once.
    pub(crate) fn start_task_request(&self, deltas: u32, interval_ms: u64) -> anyhow::Result<Request<Full<Bytes>>> {
        self.create_task_request(&json!({"model": "bench", "input": story_input(deltas, interval_ms)?}))
    }

    /// A request that follows a task from its first event.
    pub(crate) fn follow_task_request(&self, task_id: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        let uri = format!("/v1/tasks/{task_id}/events");
        Ok(self.with_host(Request::get(uri)).header(ACCEPT, "text/event-stream").body(Full::default())?)
    }

    fn create_task_request(&self, body: &serde_json::Value) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = self.with_host(Request::post("/v1/tasks")).header(CONTENT_TYPE, "application/json");
        request.body(Full::new(body.to_string().into())).context("request")
    }

    fn with_host(&self, request: Builder) -> Builder {
        request.header(HOST, self.authority.as_str())
    }
}

fn story_input(deltas: u32, interval_ms: u64) -> anyhow::Result<String> {
    match interval_ms {
        0 => Ok(format!("story {deltas} fast")),
        STORY_INTERVAL_MS => Ok(format!("story {deltas}")),
        _ => anyhow::bail!("a story has one delta per {STORY_INTERVAL_MS} ms, or full speed (0)"),
    }
}
