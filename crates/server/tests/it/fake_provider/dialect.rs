//! The events of the three provider protocols, one by one, so that each can be corrupted.
//!
//! A text delta is the inside of a JSON string and is inserted verbatim: it may be an escape that no Unicode text has.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderDialect {
    Responses,
    Messages,
    Chat,
}

/// Where a delta goes in its event.
const PLACEHOLDER: &str = "@here@";
pub(crate) const DIALECTS: [ProviderDialect; 3] =
    [ProviderDialect::Responses, ProviderDialect::Messages, ProviderDialect::Chat];

impl ProviderDialect {
    /// The provider's `kind` in a config.
    pub(crate) const fn config_kind(self) -> &'static str {
        match self {
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic",
            Self::Chat => "openai-chat",
        }
    }

    /// A name for providers and agents.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Chat => "chat",
        }
    }

    /// The protocol of a request.
    pub(crate) fn from_path(path: &str) -> Self {
        match path {
            path if path.ends_with("/responses") => Self::Responses,
            path if path.ends_with("/messages") => Self::Messages,
            path if path.ends_with("/chat/completions") => Self::Chat,
            path => panic!("nobody is at {path}"),
        }
    }

    /// Whether this request has tool results.
    pub(crate) fn has_results(self, body: &Value) -> bool {
        let text = body.to_string();
        match self {
            Self::Responses => text.contains("function_call_output"),
            Self::Messages => text.contains("tool_result"),
            Self::Chat => text.contains(r#""role":"tool""#),
        }
    }

    /// The names of the calls of a request and of its results, each in order.
    pub(crate) fn calls_and_results(self, body: &Value) -> (Vec<String>, Vec<String>) {
        let list = body[if self == Self::Responses { "input" } else { "messages" }].as_array().unwrap();
        let inner = |key: &str| list.iter().filter_map(|said| said[key].as_array()).flatten().collect::<Vec<_>>();
        let id = |key: &'static str| move |said: &&Value| said[key].as_str().unwrap().to_owned();
        let typed = |among: Vec<&Value>, kind: &str, key| {
            among.into_iter().filter(|said| said["type"] == kind).map(|said| id(key)(&said)).collect()
        };
        match self {
            Self::Responses => {
                let all = || list.iter().collect();
                (typed(all(), "function_call", "call_id"), typed(all(), "function_call_output", "call_id"))
            }
            Self::Messages => {
                let parts = inner("content");
                (typed(parts.clone(), "tool_use", "id"), typed(parts, "tool_result", "tool_use_id"))
            }
            Self::Chat => {
                let calls = inner("tool_calls").iter().map(id("id")).collect();
                (
                    calls,
                    list.iter().filter(|said| said["role"] == "tool").map(|said| id("tool_call_id")(&said)).collect(),
                )
            }
        }
    }

    /// Starts the answer.
    pub(crate) fn answer_start(self) -> String {
        match self {
            Self::Responses => sse_event(&json!({"type": "response.created", "response": response("in_progress")})),
            Self::Messages => {
                let usage = json!({"input_tokens": 9, "output_tokens": 1});
                let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                    "stop_reason": null, "usage": usage});
                sse_event(&json!({"type": "message_start", "message": message}))
            }
            Self::Chat => chat_chunk(&json!({"role": "assistant", "content": ""}), None),
        }
    }

    /// Starts a message at this index.
    pub(crate) fn message_start(self, index: u32) -> String {
        let block = json!({"type": "text", "text": ""});
        match self {
            Self::Responses => {
                let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress",
                    "content": []});
                sse_event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))
                    + &sse_event(
                        &json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": index,
                        "content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}}),
                    )
            }
            Self::Messages => {
                sse_event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
            }
            Self::Chat => String::new(),
        }
    }

    /// A delta of that message.
    pub(crate) fn text_delta(self, index: u32, piece: &str) -> String {
        let event = match self {
            Self::Responses => sse_event(&json!({"type": "response.output_text.delta", "item_id": "msg_1",
                "output_index": index, "content_index": 0, "delta": PLACEHOLDER, "logprobs": []})),
            Self::Messages => sse_event(&json!({"type": "content_block_delta", "index": index,
                "delta": {"type": "text_delta", "text": PLACEHOLDER}})),
            Self::Chat => chat_chunk(&json!({"content": PLACEHOLDER}), None),
        };
        event.replace(PLACEHOLDER, piece)
    }

    /// Ends the message.
    pub(crate) fn message_end(self, index: u32, text: &str) -> String {
        match self {
            Self::Responses => {
                let content = json!([{"type": "output_text", "text": PLACEHOLDER, "annotations": []}]);
                let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": content});
                sse_event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}))
                    .replace(PLACEHOLDER, text)
            }
            Self::Messages => sse_event(&json!({"type": "content_block_stop", "index": index})),
            Self::Chat => String::new(),
        }
    }

    /// Starts a call of `work` at this index. `item` distinguishes items that are otherwise equal.
    pub(crate) fn call_start(self, index: u32, item: &str, id: &str) -> String {
        match self {
            Self::Responses => sse_event(&json!({"type": "response.output_item.added", "output_index": index,
                "item": function_call(item, id, "", "in_progress")})),
            Self::Messages => sse_event(&json!({"type": "content_block_start", "index": index,
                "content_block": {"type": "tool_use", "id": id, "name": "work", "input": {}}})),
            Self::Chat => chat_chunk(
                &json!({"tool_calls": [{"index": index, "id": id, "type": "function",
                "function": {"name": "work", "arguments": ""}}]}),
                None,
            ),
        }
    }

    /// A delta of its arguments.
    pub(crate) fn arguments_delta(self, index: u32, item: &str, piece: &str) -> String {
        match self {
            Self::Responses => {
                sse_event(&json!({"type": "response.function_call_arguments.delta", "output_index": index,
                "item_id": item, "delta": piece}))
            }
            Self::Messages => sse_event(&json!({"type": "content_block_delta", "index": index,
                "delta": {"type": "input_json_delta", "partial_json": piece}})),
            Self::Chat => {
                chat_chunk(&json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), None)
            }
        }
    }

    /// Ends the call as complete, whatever its arguments are.
    pub(crate) fn call_end(self, index: u32, item: &str, id: &str, arguments: &str) -> String {
        match self {
            Self::Responses => {
                let done = json!({"type": "response.function_call_arguments.done", "output_index": index,
                    "item_id": item, "arguments": arguments});
                sse_event(&done)
                    + &sse_event(&json!({"type": "response.output_item.done", "output_index": index,
                        "item": function_call(item, id, arguments, "completed")}))
            }
            Self::Messages => sse_event(&json!({"type": "content_block_stop", "index": index})),
            Self::Chat => String::new(),
        }
    }

    /// The terminal event.
    pub(crate) fn terminal_event(self, calls: bool, input_tokens: i64, output_tokens: i64) -> String {
        match self {
            Self::Responses => {
                let mut response = response("completed");
                response["usage"] = json!({"input_tokens": input_tokens, "output_tokens": output_tokens,
                    "total_tokens": input_tokens + output_tokens});
                sse_event(&json!({"type": "response.completed", "response": response}))
            }
            Self::Messages => {
                let reason = if calls { "tool_use" } else { "end_turn" };
                let usage = json!({"input_tokens": input_tokens, "output_tokens": output_tokens});
                sse_event(&json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}))
                    + &sse_event(&json!({"type": "message_stop"}))
            }
            Self::Chat => {
                let usage = json!({"prompt_tokens": input_tokens, "completion_tokens": output_tokens,
                    "total_tokens": input_tokens + output_tokens});
                let counted = json!({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage});
                chat_chunk(&json!({}), Some(if calls { "tool_calls" } else { "stop" }))
                    + &format!("data: {counted}\n\ndata: [DONE]\n\n")
            }
        }
    }

    /// A complete answer with this text.
    pub(crate) fn full_answer(self, text: &str) -> String {
        [
            self.answer_start(),
            self.message_start(0),
            self.text_delta(0, text),
            self.message_end(0, text),
            self.terminal_event(false, 9, 4),
        ]
        .concat()
    }
}

fn function_call(item: &str, id: &str, arguments: &str, status: &str) -> Value {
    json!({"type": "function_call", "id": item, "call_id": id, "name": "work", "arguments": arguments,
        "status": status})
}

fn response(status: &str) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": []})
}

/// An event named after its type.
pub(crate) fn sse_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn chat_chunk(delta: &Value, finish: Option<&str>) -> String {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices});
    format!("data: {chunk}\n\n")
}
