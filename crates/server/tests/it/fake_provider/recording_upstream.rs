//! An upstream of all three protocols that records its requests and answers as the test says.

use super::dialect::{DIALECTS, ProviderDialect, sse_event};
use super::loopback::{Loopback, ResponseAction, stream_head};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

pub(crate) struct RecordingUpstream {
    listener: Loopback,
    requests: Arc<Mutex<Vec<(ProviderDialect, Value, String)>>>,
}

impl RecordingUpstream {
    pub(crate) async fn start(answer: impl Fn(ProviderDialect, &Value) -> String + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let listener = Loopback::start(move |request| {
            let dialect = ProviderDialect::from_path(&request.path);
            let text = answer(dialect, &request.body);
            recorded.lock().unwrap().push((dialect, request.body, request.text));
            vec![stream_head(), ResponseAction::Send(text.into_bytes())]
        });
        Self { listener: listener.await, requests }
    }

    /// A provider for each protocol, named after it.
    pub(crate) fn providers(&self) -> String {
        let mut config = String::new();
        for dialect in DIALECTS {
            let (name, kind, url) = (dialect.name(), dialect.config_kind(), self.listener.url("/v1"));
            write!(config, "[providers.{name}]\nkind = \"{kind}\"\nbase_url = \"{url}\"\n").unwrap();
        }
        config
    }

    /// An agent for each protocol, named after it, with these keys.
    pub(crate) fn agents(&self, keys: &str) -> String {
        let agent = |dialect: ProviderDialect| format!("[agents.{0}]\nmodel = \"{0}/m\"\n{keys}\n", dialect.name());
        self.providers() + &DIALECTS.map(agent).concat()
    }

    pub(crate) fn requests(&self, dialect: ProviderDialect) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(of, ..)| *of == dialect).map(|(_, body, _)| body.clone()).collect()
    }

    /// The last request as it was sent: a `Value` has its numbers only nearly.
    pub(crate) fn last_request_text(&self, dialect: ProviderDialect) -> String {
        let requests = self.requests.lock().unwrap();
        requests.iter().rfind(|(of, ..)| *of == dialect).map(|(.., text)| text.clone()).expect("a request")
    }

    pub(crate) fn last_request(&self, dialect: ProviderDialect) -> Value {
        self.requests(dialect).pop().expect("a request")
    }
}

impl ProviderDialect {
    /// A complete answer that thinks, and then calls a tool. The id of the call contains its name.
    pub(crate) fn full_call(self, name: &str, arguments: &str) -> String {
        let (item, call) = (format!("fc_{name}"), format!("call_{name}"));
        let call = [
            self.call_start(1, &item, &call),
            self.arguments_delta(1, &item, arguments),
            self.call_end(1, &item, &call, arguments),
            self.terminal_event(true, 9, 4),
        ];
        let call = call.concat().replace("\"name\":\"work\"", &format!("\"name\":\"{name}\""));
        self.answer_start() + &self.reasoning(0) + &call
    }

    /// A complete reasoning item, with what the service wants back.
    fn reasoning(self, index: u32) -> String {
        match self {
            Self::Responses => {
                let item = |status: &str| {
                    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed",
                        "status": status})
                };
                let event = |kind: &str, item: Value| {
                    sse_event(&json!({"type": format!("response.output_item.{kind}"), "output_index": index,
                        "item": item}))
                };
                event("added", item("in_progress")) + &event("done", item("completed"))
            }
            Self::Messages => {
                let delta =
                    |delta: Value| sse_event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
                sse_event(&json!({"type": "content_block_start", "index": index,
                    "content_block": {"type": "thinking", "thinking": "", "signature": ""}}))
                    + &delta(json!({"type": "thinking_delta", "thinking": "Hm."}))
                    + &delta(json!({"type": "signature_delta", "signature": "sealed"}))
                    + &sse_event(&json!({"type": "content_block_stop", "index": index}))
            }
            Self::Chat => {
                let choices = json!([{"index": 0, "delta": {"reasoning_content": "Hm."}, "finish_reason": null}]);
                let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                    "choices": choices});
                format!("data: {chunk}\n\n")
            }
        }
    }

    /// What the model is told besides the conversation.
    pub(crate) fn instructions(self, body: &Value) -> String {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            parts => parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
        };
        match self {
            Self::Responses => text(&body["instructions"]),
            Self::Messages => text(&body["system"]),
            Self::Chat => {
                let first = &body["messages"][0];
                if matches!(first["role"].as_str(), Some("system" | "developer")) {
                    text(&first["content"])
                } else {
                    String::new()
                }
            }
        }
    }

    pub(crate) fn tool_names(self, body: &Value) -> Vec<String> {
        let name = |tool: &Value| match self {
            Self::Responses | Self::Messages => tool["name"].as_str().unwrap().to_owned(),
            Self::Chat => tool["function"]["name"].as_str().unwrap().to_owned(),
        };
        body["tools"].as_array().into_iter().flatten().map(name).collect()
    }

    /// The arguments of the calls of a request, in order.
    pub(crate) fn call_arguments(self, body: &Value) -> Vec<Value> {
        let parse = |text: &Value| serde_json::from_str(text.as_str().unwrap()).unwrap();
        match self {
            Self::Responses => {
                let calls = self.entries(body).into_iter().filter(|item| item["type"] == "function_call");
                calls.map(|item| parse(&item["arguments"])).collect()
            }
            Self::Messages => {
                let calls = self.entries(body).into_iter().filter(|block| block["type"] == "tool_use");
                calls.map(|block| block["input"].clone()).collect()
            }
            Self::Chat => {
                let messages = body["messages"].as_array().unwrap().iter();
                let calls = messages.filter_map(|message| message["tool_calls"].as_array()).flatten();
                calls.map(|call| parse(&call["function"]["arguments"])).collect()
            }
        }
    }

    /// The results of a request as JSON texts, in order.
    pub(crate) fn results(self, body: &Value) -> Vec<String> {
        let of = |kind: &str, key: &str| {
            self.entries(body).into_iter().filter(|e| e["type"] == kind).map(|e| e[key].to_string()).collect()
        };
        match self {
            Self::Responses => of("function_call_output", "output"),
            Self::Messages => of("tool_result", "content"),
            Self::Chat => {
                let messages = body["messages"].as_array().unwrap().iter();
                messages.filter(|message| message["role"] == "tool").map(|m| m["content"].to_string()).collect()
            }
        }
    }

    /// The input items or content blocks of a request.
    fn entries(self, body: &Value) -> Vec<&Value> {
        match self {
            Self::Responses => body["input"].as_array().unwrap().iter().collect(),
            Self::Messages | Self::Chat => {
                let messages = body["messages"].as_array().unwrap().iter();
                messages.filter_map(|message| message["content"].as_array()).flatten().collect()
            }
        }
    }
}
