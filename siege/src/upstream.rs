//! The model's service: a mock of Chat Completions that does what the last message of the user says.
//!
//! | message | answer |
//! |---|---|
//! | `story N` | N deltas at full speed |
//! | `story N every M` | N deltas, one each M milliseconds |
//! | `record MARK` | a call of the tool `record`, and a text once its result is there |
//! | `call NAME` | a call of that tool without arguments, and a text once its result is there |
//! | anything else | one delta |

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{Instant, Sleep};

const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
const BACKLOG: u32 = 4096;
/// Deltas that go into one frame of the body at full speed.
const DELTAS_PER_FRAME: u32 = 64;

/// Starts the service on a thread of its own, which ends with the process. Returns its port.
pub(crate) fn start_upstream() -> anyhow::Result<u16> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let serve = move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(([127, 0, 0, 1], 0).into())?;
            let listener = socket.listen(BACKLOG)?;
            sender.send(listener.local_addr()?.port()).context("nobody waits for the port")?;
            serve_connections(listener).await
        })
    };
    std::thread::Builder::new().name("upstream".to_owned()).spawn(serve)?;
    receiver.recv().context("the mock of the model's service did not start")
}

async fn serve_connections(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of descriptors: the server retries, as with a real service.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        socket.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(|request| async { anyhow::Ok(answer_request(request).await) });
            // A server that was killed disconnects in the middle.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn answer_request(request: Request<Incoming>) -> Response<ChunkBody> {
    let body = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await;
    let body: Value = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or(Value::Null);
    let mut response = Response::new(plan_answer(&body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn plan_answer(request: &Value) -> ChunkBody {
    let messages = request.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if messages.last().is_some_and(|message| message.get("role") == Some(&json!("tool"))) {
        return ChunkBody::new(1, None, None);
    }
    let user = messages.iter().rev().find(|message| message.get("role") == Some(&json!("user")));
    let text = user.and_then(|message| message.get("content")).map(content_text).unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["story", count, "every", interval] => {
            let interval = interval.parse().ok().map(Duration::from_millis);
            ChunkBody::new(count.parse().unwrap_or(1), interval, None)
        }
        ["story", count] => ChunkBody::new(count.parse().unwrap_or(1), None, None),
        ["record", mark] => ChunkBody::new(0, None, Some(("record".to_owned(), json!({"mark": mark}).to_string()))),
        ["call", name] => ChunkBody::new(0, None, Some(((*name).to_owned(), "{}".to_owned()))),
        _ => ChunkBody::new(1, None, None),
    }
}

/// The text of a message, which is a string or a list of parts.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// The chunks of an answer, at their times.
struct ChunkBody {
    deltas: u32,
    sent: u32,
    interval: Option<Duration>,
    timer: Pin<Box<Sleep>>,
    tail: VecDeque<Bytes>,
}

impl ChunkBody {
    fn new(deltas: u32, interval: Option<Duration>, call: Option<(String, String)>) -> Self {
        let mut tail = VecDeque::new();
        let reason = if call.is_some() { "tool_calls" } else { "stop" };
        if let Some((name, arguments)) = call {
            let call = json!({"index": 0, "id": format!("call_{name}"), "type": "function",
                "function": {"name": name, "arguments": arguments}});
            tail.push_back(chunk(&json!({"role": "assistant", "tool_calls": [call]}), None));
        }
        tail.push_back(chunk(&json!({}), Some(reason)));
        tail.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        Self { deltas, sent: 0, interval, timer: Box::pin(tokio::time::sleep(Duration::ZERO)), tail }
    }

    fn next_deltas(&mut self) -> Bytes {
        let count = if self.interval.is_some() { 1 } else { DELTAS_PER_FRAME.min(self.deltas - self.sent) };
        let text = |number: u32| chunk(&json!({"content": format!("word {number} ")}), None);
        let bytes: Vec<u8> = (self.sent..self.sent + count).flat_map(text).collect();
        self.sent += count;
        bytes.into()
    }
}

fn chunk(delta: &Value, finish_reason: Option<&str>) -> Bytes {
    let chunk = json!({"id": "chatcmpl-siege", "object": "chat.completion.chunk", "created": 1, "model": "writer",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]});
    format!("data: {chunk}\n\n").into()
}

impl Body for ChunkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent < self.deltas {
            if let Some(interval) = self.interval {
                if self.timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.timer.as_mut().reset(Instant::now() + interval);
            }
            return Poll::Ready(Some(Ok(Frame::data(self.next_deltas()))));
        }
        Poll::Ready(self.tail.pop_front().map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer_text(messages: Value) -> String {
        let body = plan_answer(&json!({"messages": messages}));
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn the_last_message_of_the_user_decides() {
        let story = answer_text(json!([{"role": "user", "content": "story 100"}])).await;
        assert_eq!(story.matches("word ").count(), 100);
        assert!(story.ends_with("data: [DONE]\n\n"));
        let record = json!([{"role": "user", "content": "record m-1"}]);
        assert!(answer_text(record).await.contains("tool_calls"));
        let recorded = json!([{"role": "user", "content": "record m-1"}, {"role": "tool", "content": "recorded"}]);
        assert_eq!(answer_text(recorded).await.matches("word ").count(), 1);
    }
}
