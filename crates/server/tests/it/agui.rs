//! AG-UI and CopilotKit, from outside. The events themselves are tested with the protocol, and with real clients.

mod answers;
mod copilotkit;
mod invalid;
mod joins;
mod runs;

use crate::harness::{Reply, Server, parse_frames};
use serde_json::{Value, json};

const RUN: &str = "/agui/demo";
const CONNECT: &str = "/agui/demo/connect";

/// A client with its messages, which it changes as the SDK's reducer does: a snapshot replaces them.
struct AgUiClient<'a> {
    hw: &'a Server,
    path: &'static str,
    thread: String,
    messages: Vec<Value>,
    run_count: u32,
}

impl<'a> AgUiClient<'a> {
    fn new(hw: &'a Server, thread: &str) -> Self {
        Self { hw, path: RUN, thread: thread.to_owned(), messages: Vec::new(), run_count: 0 }
    }

    fn add_message(&mut self, role: &str, content: &str) {
        let id = format!("{}-m{}", self.thread, self.messages.len());
        self.messages.push(json!({"id": id, "role": role, "content": content}));
    }

    /// The body of the next request: every run has an id of its own.
    fn body(&mut self, more: &Value) -> Value {
        self.run_count += 1;
        let run_id = format!("{}-r{}", self.thread, self.run_count);
        let mut body = json!({"threadId": self.thread, "runId": run_id, "messages": self.messages,
            "tools": [], "context": [], "forwardedProps": {}, "state": {}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }

    async fn send(&mut self, more: Value) -> Reply {
        let body = self.body(&more);
        self.hw.post(self.path, body).await
    }

    /// Sends a message and takes over what comes.
    async fn say(&mut self, words: &str) -> Vec<Value> {
        self.add_message("user", words);
        self.go(json!({})).await
    }

    async fn go(&mut self, more: Value) -> Vec<Value> {
        let events = events(&self.send(more).await);
        self.apply(&events);
        events
    }

    fn apply(&mut self, events: &[Value]) {
        for event in events {
            self.apply_event(event);
        }
    }

    fn apply_event(&mut self, event: &Value) {
        let id = &event["messageId"];
        match event["type"].as_str().unwrap() {
            "MESSAGES_SNAPSHOT" => self.messages.clone_from(event["messages"].as_array().unwrap()),
            "TEXT_MESSAGE_START" if self.messages.iter().any(|message| message["id"] == *id) => {}
            "TEXT_MESSAGE_START" => self.messages.push(json!({"id": id, "role": event["role"], "content": ""})),
            "TEXT_MESSAGE_CONTENT" => {
                let message = self.messages.iter_mut().find(|message| message["id"] == *id).unwrap();
                message["content"] = json!(format!("{}{}", text(&message["content"]), text(&event["delta"])));
            }
            "TOOL_CALL_START" => {
                let call = json!({"id": event["toolCallId"], "type": "function",
                    "function": {"name": event["toolCallName"], "arguments": ""}});
                let owner = event.get("parentMessageId").unwrap_or(&event["toolCallId"]);
                match self.messages.iter_mut().find(|message| message["id"] == *owner) {
                    Some(message) => match message["toolCalls"].as_array_mut() {
                        Some(calls) => calls.push(call),
                        None => message["toolCalls"] = json!([call]),
                    },
                    None => self.messages.push(json!({"id": owner, "role": "assistant", "toolCalls": [call]})),
                }
            }
            "TOOL_CALL_ARGS" => {
                let calls = self.messages.iter_mut().filter_map(|message| message["toolCalls"].as_array_mut());
                let call = calls.flatten().find(|call| call["id"] == event["toolCallId"]).unwrap();
                let arguments = format!("{}{}", text(&call["function"]["arguments"]), text(&event["delta"]));
                call["function"]["arguments"] = json!(arguments);
            }
            "TOOL_CALL_RESULT" => self.messages.push(json!({"id": id, "role": "tool",
                "toolCallId": event["toolCallId"], "content": event["content"]})),
            _ => {}
        }
    }

    /// Roles and contents, in short.
    fn summary(&self) -> Vec<String> {
        message_summary(&self.messages)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn message_summary(messages: &[Value]) -> Vec<String> {
    let line = |message: &Value| {
        let calls = message["toolCalls"].as_array().into_iter().flatten();
        let calls: String = calls.map(|call| format!(" +{}", text(&call["function"]["name"]))).collect();
        format!("{}: {}{calls}", text(&message["role"]), text(&message["content"]))
    };
    messages.iter().map(line).collect()
}

/// The events of a stream that has ended.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    parse_frames(&reply.text).into_iter().map(|frame| frame.data).collect()
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| text(&event["type"])).collect()
}

/// The status and the code of a refusal, which has the members that AG-UI's front ends read.
fn refusal(reply: &Reply) -> (u16, String) {
    let error = reply.json();
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", reply.text);
    assert_eq!(error["error"], error["code"], "{}", reply.text);
    (reply.status, text(&error["code"]).to_owned())
}

/// The only interrupt of a run that has paused.
fn interrupt(events: &[Value]) -> Value {
    let interrupts = events.last().unwrap()["outcome"]["interrupts"].as_array().unwrap();
    assert_eq!(interrupts.len(), 1, "{interrupts:?}");
    interrupts[0].clone()
}

/// A `resume` with one entry.
fn resume(interrupt: &Value, payload: Value) -> Value {
    let mut resume = json!({"resume": [{"interruptId": interrupt["id"], "status": "resolved"}]});
    resume["resume"][0]["payload"] = payload;
    resume
}

/// The newest run of the server.
async fn newest_run(hw: &Server) -> Value {
    hw.get("/v1/tasks?limit=1").await.json()["data"][0].clone()
}
