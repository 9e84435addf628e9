//! Files that users link, from the request to the model; and every URL that must not be fetched.

#[path = "../../../fetch/tests/it/canary.rs"]
mod canary;
pub(crate) mod file_server;
mod interrupted_reads;
#[path = "../../../fetch/tests/it/network.rs"]
mod network;
mod own_files;
#[path = "../../../fetch/tests/it/pdf_maker.rs"]
mod pdf_maker;
mod reading;
mod refused;
mod web_images;

use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, ReceivedRequest, ResponseAction, stream_head};
use crate::harness::{Server, SseFrame};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// The message for every forbidden URL.
const REFUSED: &str = "This address may not be fetched.";
const TERMINAL: [&str; 4] = ["task.completed", "task.incomplete", "task.failed", "task.cancelled"];

/// A model that greets and records its requests.
struct Listener {
    upstream: Loopback,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Listener {
    async fn open() -> Self {
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let notes = Arc::clone(&asked);
        let upstream = Loopback::start(move |asked: ReceivedRequest| {
            notes.lock().unwrap().push(asked.body);
            vec![stream_head(), ResponseAction::Send(ProviderDialect::Chat.full_answer("Hello.").into_bytes())]
        });
        Self { upstream: upstream.await, asked }
    }

    /// A server with one agent for this model, and additions to its config.
    fn server(&self, more: &str) -> Server {
        self.server_with_provider("", more)
    }

    /// The same, with additional settings of the provider.
    fn server_with_provider(&self, settings: &str, more: &str) -> Server {
        let url = self.upstream.url("/v1");
        let provider = format!("[providers.ear]\nkind = \"openai-chat\"\nbase_url = \"{url}\"\n{settings}");
        Server::with_config(&format!("{provider}[agents.reader]\nmodel = \"ear/m\"\n{more}"), "")
    }

    /// The user texts of the last request, in order.
    fn heard(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let messages = asked.last().unwrap()["messages"].as_array().unwrap().clone();
        let user = messages.into_iter().rfind(|message| message["role"] == "user").unwrap();
        match &user["content"] {
            Value::String(text) => vec![text.clone()],
            parts => parts.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap().to_owned()).collect(),
        }
    }

    fn questions(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// A request about these files.
fn about(urls: &[String]) -> Value {
    about_parts(urls.iter().map(|url| json!({"type": "file", "file": {"url": url}})).collect())
}

fn about_parts(parts: Vec<Value>) -> Value {
    let parts: Vec<Value> = std::iter::once(json!({"type": "text", "text": "Read these."})).chain(parts).collect();
    json!({"model": "reader", "input": parts})
}

/// Begins a run with these parts; gives its id.
async fn begin_with(hw: &Server, parts: Vec<Value>) -> String {
    hw.create_task(about_parts(parts)).await["task_id"].as_str().unwrap().to_owned()
}

/// Begins a run; gives its id.
async fn begin(hw: &Server, urls: &[String]) -> String {
    hw.create_task(about(urls)).await["task_id"].as_str().unwrap().to_owned()
}

/// All frames of a run to its end.
async fn frames(hw: &Server, task: &str) -> Vec<SseFrame> {
    hw.frames(&format!("/v1/tasks/{task}/events"), None).await
}

/// The last state of each file: URL, status, message.
fn files(frames: &[SseFrame]) -> Vec<(String, String, String)> {
    let updated = frames.iter().filter(|frame| frame.event == "task.file_processing.updated");
    let field = |frame: &SseFrame, name: &str| frame.data[name].as_str().unwrap_or_default().to_owned();
    let ended = updated.filter(|frame| frame.data["status"] != "processing");
    ended.map(|frame| (field(frame, "url"), field(frame, "status"), field(frame, "message"))).collect()
}
