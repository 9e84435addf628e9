//! A builder for short logs, and a summary of their frames.

use crate::resumes::frames;
use model::event::Event;
use model::record::RecordDraft;
use model::seq::Epoch;
use model::{Record, Seq, TaskId, ThreadId};
use protocol::agent_runs::AgentRunsProjection;
use serde_json::{Value, json};
use sse::{DecodeLimits, Decoder};
use std::collections::HashMap;

/// The suffix of the run. Expected texts write it as `R`.
const SUFFIX: &str = "0123456789abcdef0123456789abcdef";

/// A log of one run under construction. `R` in any text is the suffix of the run.
pub(crate) struct Log {
    records: Vec<Record>,
    task: String,
    /// The number of items of each task.
    items: HashMap<String, u32>,
}

impl Log {
    /// A started run.
    pub(crate) fn new() -> Self {
        Self::with(json!({}))
    }

    /// The same, with additional request fields.
    pub(crate) fn with(more: Value) -> Self {
        let log = Self { records: Vec::new(), task: "task_R".to_owned(), items: HashMap::new() };
        let mut task = json!({
            "thread_id": "thr_1", "agent": "demo", "model": "scripted/demo",
            "input": [{"id": "msg_Rin", "role": "user", "content": [{"type": "text", "text": "go"}]}],
        });
        merge(&mut task, more);
        log.event("task.created", json!({ "task": task })).event("task.started", json!({}))
    }

    /// Adds an event of the current task.
    pub(crate) fn event(mut self, kind: &str, fields: Value) -> Self {
        let mut event = json!({ "type": kind, "task_id": self.task });
        merge(&mut event, fields);
        let text = event.to_string().replace("_R", &format!("_{SUFFIX}"));
        let event: Event = serde_json::from_str(&text).expect("an event");
        let seq = Seq(self.records.len() as u64 + 1);
        let draft = RecordDraft { seq, at: 1_000 * seq.0, event, private: None };
        let run = TaskId::from(format!("task_{SUFFIX}"));
        self.records.push(Record::seal(&ThreadId::from("thr_1"), &run, Epoch(1), draft));
        self
    }

    /// Switches the current task.
    pub(crate) fn at(mut self, task: &str) -> Self {
        self.task = task.to_owned();
        self
    }

    pub(crate) fn step(self, step: u32, attempt: u32) -> Self {
        self.event("task.step.started", json!({ "step": step, "attempt": attempt }))
    }

    pub(crate) fn step_done(self, step: u32, reason: &str) -> Self {
        self.event("task.step.done", json!({ "step": step, "model": "m", "stop_reason": reason, "usage": {} }))
    }

    fn next_item(&mut self) -> u32 {
        let count = self.items.entry(self.task.clone()).or_default();
        *count += 1;
        *count - 1
    }

    /// A message in several deltas with this status.
    pub(crate) fn message(mut self, id: &str, pieces: &[&str], end: Value) -> Self {
        let index = self.next_item();
        let place = json!({ "item_id": id, "output_index": index, "block_index": 0 });
        let item = json!({ "type": "message", "id": id, "role": "assistant" });
        let with = |more: Value| merged(place.clone(), more);
        let mut log = self.event("task.output_item.added", json!({ "output_index": index, "item": item }));
        log = log.event("task.text.added", with(json!({ "item": { "type": "text", "text": "" } })));
        for piece in pieces {
            log = log.event("task.text.delta", with(json!({ "delta": piece })));
        }
        log = log.event("task.text.done", with(json!({ "item": { "type": "text", "text": pieces.concat() } })));
        log.event("task.output_item.done", json!({ "output_index": index, "item": merged(item, end) }))
    }

    /// A complete message.
    pub(crate) fn say(self, id: &str, pieces: &[&str]) -> Self {
        self.message(id, pieces, json!({ "status": "completed" }))
    }

    /// A call with this number in the run.
    pub(crate) fn call(mut self, number: u32, name: &str, arguments: &Value, more: Value) -> Self {
        let index = self.next_item();
        let id = format!("fc_R{number}");
        let item = json!({ "type": "tool_call", "id": id, "call_id": format!("call_R{number}"), "name": name });
        let item = merged(item, more);
        let (place, said) =
            (json!({ "item_id": id, "output_index": index }), json!({ "arguments": arguments.to_string() }));
        self.event("task.output_item.added", json!({ "output_index": index, "item": item }))
            .event("task.tool_call_arguments.done", merged(place, said.clone()))
            .event("task.output_item.done", json!({ "output_index": index, "item": merged(item, said) }))
    }

    pub(crate) fn start(self, number: u32, arguments: &Value) -> Self {
        let call = format!("call_R{number}");
        let fields = json!({ "call_id": call, "arguments": arguments.to_string(), "attempt": 1 });
        self.event("task.tool.started", fields)
    }

    /// A call's result with these blocks (a string is a text block) and this status.
    pub(crate) fn result(mut self, number: u32, blocks: &[Value], end: Value) -> Self {
        let index = self.next_item();
        let id = format!("fco_R{number}");
        let item = json!({ "type": "tool_result", "id": id, "call_id": format!("call_R{number}") });
        let mut log = self.event("task.output_item.added", json!({ "output_index": index, "item": item }));
        for (at, block) in blocks.iter().enumerate() {
            let place = json!({ "item_id": id, "output_index": index, "block_index": at, "item": block });
            let kind = if block["type"] == "image" { "task.image.done" } else { "task.text.done" };
            log = log.event(kind, place);
        }
        log.event("task.output_item.done", json!({ "output_index": index, "item": merged(item, end) }))
    }

    /// Requests approval of a call.
    pub(crate) fn ask(self, number: u32, name: &str, args: &Value) -> Self {
        self.event(
            "task.approval.requested",
            json!({
                "key": format!("apr_R{number}"), "call_id": format!("call_R{number}"),
                "action_requests": [{ "name": name, "args": args }], "review_configs": [{ "require_approval": true }],
                "timeout_seconds": 300, "expires_at": 1_710_000_300_000_u64,
            }),
        )
    }

    /// The run pauses for one call, and resumes.
    pub(crate) fn pause(self, kind: &str, number: u32, by: &str) -> Self {
        let task = self.task.clone();
        let pending = json!([{ "kind": kind, "call_id": format!("call_R{number}"), "task_id": task }]);
        self.at("task_R")
            .event("task.paused", json!({ "pending": pending }))
            .event("task.resumed", json!({ "by": by }))
            .at(&task)
    }

    pub(crate) fn resolve(self, number: u32, decision: &Value, by: &str) -> Self {
        let key = format!("apr_R{number}");
        self.event("task.approval.resolved", json!({ "key": key, "decisions": [decision], "by": by }))
    }

    pub(crate) fn end(self, kind: &str, more: Value) -> Self {
        self.event(kind, merged(json!({ "usage": {}, "duration_ms": 1 }), more))
    }

    pub(crate) fn complete(self) -> Vec<Record> {
        self.end("task.completed", json!({})).records
    }

    pub(crate) fn records(self) -> Vec<Record> {
        self.records
    }

    /// The records as a viewer gets them.
    pub(crate) fn told(self) -> String {
        tell(&self.records)
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn merge(object: &mut Value, more: Value) {
    let (Value::Object(object), Value::Object(more)) = (object, more) else { panic!("objects") };
    object.extend(more);
}

fn merged(mut object: Value, more: Value) -> Value {
    merge(&mut object, more);
    object
}

pub(crate) struct Frame {
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// The frames for a viewer that calls the thread `mine`.
pub(crate) fn shown(records: &[Record]) -> Vec<Frame> {
    let bytes = frames(Box::new(AgentRunsProjection::new("mine".to_owned())), records);
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut rest = &bytes[..];
    let mut shown = Vec::new();
    while let Some(event) = decoder.decode(&mut rest).expect("a stream") {
        let data = serde_json::from_str(&event.data).expect("JSON");
        shown.push(Frame { kind: event.event.expect("a type"), data });
    }
    shown
}

/// One line per frame: its type and its fields, without thread and run.
pub(crate) fn tell(records: &[Record]) -> String {
    let lines = shown(records).into_iter().map(|Frame { kind, mut data }| {
        let fields = data.as_object_mut().expect("an object");
        assert_eq!(fields.remove("type"), Some(json!(kind)));
        assert_eq!(fields.remove("threadId"), Some(json!("mine")));
        assert_eq!(fields.remove("runId"), Some(json!(format!("task_{SUFFIX}"))));
        let said = data.to_string().replace(SUFFIX, "R").replace('"', "");
        format!("{kind} {said}")
    });
    lines.map(|line| line.strip_suffix(" {}").unwrap_or(&line).to_owned()).collect::<Vec<_>>().join("\n")
}
