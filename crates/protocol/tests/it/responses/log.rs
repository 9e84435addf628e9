//! A builder for logs with the ids of a run whose suffix is `R`.

use model::event::Event;
use model::record::{PrivatePayload, RecordDraft};
use model::{Epoch, Record, Seq, TaskId, ThreadId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The thread of every such log.
pub(crate) fn thread() -> ThreadId {
    ThreadId::from("thr_1")
}

/// The run of every such log.
pub(crate) fn run() -> TaskId {
    TaskId::from("task_R")
}

/// A log under construction, with one current task.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) records: Vec<Record>,
    task: String,
    outputs: BTreeMap<String, u32>,
    steps: BTreeMap<String, u32>,
}

impl Log {
    /// A started run of the agent `demo`.
    pub(crate) fn new() -> Self {
        Self::asked(None)
    }

    /// The same, with its request.
    pub(crate) fn asked(echo: Option<Value>) -> Self {
        let mut log =
            Self { records: Vec::new(), task: "task_R".to_owned(), outputs: BTreeMap::new(), steps: BTreeMap::new() };
        log.create("demo", None, echo);
        log
    }

    fn create(&mut self, agent: &str, parent: Option<&str>, echo: Option<Value>) {
        let task = json!({
            "thread_id": "thr_1", "agent": agent, "model": "scripted/demo", "input": [], "parent_task_id": parent,
            "metadata": {"topic": "rivers"},
        });
        self.with(
            json!({"type": "task.created", "task": task}),
            PrivatePayload { request_echo: echo, ..PrivatePayload::default() },
        );
        self.add(json!({"type": "task.started"}));
    }

    /// Adds a record of the current task.
    pub(crate) fn add(&mut self, event: Value) -> &mut Self {
        self.with(event, PrivatePayload::default())
    }

    pub(crate) fn with(&mut self, mut event: Value, private: PrivatePayload) -> &mut Self {
        let fields = event.as_object_mut().unwrap();
        fields.entry("task_id").or_insert_with(|| self.task.clone().into());
        let event: Event = serde_json::from_value(event.clone()).unwrap_or_else(|error| panic!("{error}: {event}"));
        let seq = Seq(self.records.len() as u64 + 1);
        let private = (private != PrivatePayload::default()).then(|| Box::new(private));
        let draft = RecordDraft { seq, at: 1_710_000_000_000 + seq.0 * 10, event, private };
        self.records.push(Record::seal(&thread(), &run(), Epoch(1), draft));
        self
    }

    /// Switches to this task. A child starts with its first item.
    pub(crate) fn of(&mut self, task: &str) -> &mut Self {
        let is_new = task != "task_R" && !self.outputs.contains_key(task);
        let parent = std::mem::replace(&mut self.task, task.to_owned());
        if is_new {
            self.outputs.insert(task.to_owned(), 0);
            self.create("WeatherAgent", Some(&parent), None);
        }
        self
    }

    fn next(&mut self) -> u32 {
        let next = self.outputs.entry(self.task.clone()).or_default();
        *next += 1;
        *next - 1
    }

    fn step_number(&mut self) -> u32 {
        *self.steps.entry(self.task.clone()).or_default()
    }

    pub(crate) fn step(&mut self) -> &mut Self {
        *self.steps.entry(self.task.clone()).or_default() += 1;
        let step = self.step_number();
        self.add(json!({"type": "task.step.started", "step": step, "attempt": 1}))
    }

    /// Repeats the turn.
    pub(crate) fn step_again(&mut self) -> &mut Self {
        let step = self.step_number();
        self.add(json!({"type": "task.step.started", "step": step, "attempt": 2}))
    }

    pub(crate) fn step_done(&mut self, stop_reason: &str) -> &mut Self {
        let step = self.step_number();
        let usage = json!({"input_tokens": 10, "cached_tokens": 4, "output_tokens": 5, "reasoning_tokens": 2});
        let (model, tier) = ("scripted/demo", Value::Null);
        self.add(json!({
            "type": "task.step.done", "step": step, "model": model, "stop_reason": stop_reason, "usage": usage,
            "service_tier": tier,
        }))
    }

    /// Reasoning in parts of two deltas each.
    pub(crate) fn reasoning(&mut self, id: &str, parts: &[[&str; 2]]) -> &mut Self {
        let at = self.next();
        let item = json!({"type": "reasoning", "id": id, "summary": [], "status": "in_progress"});
        self.add(json!({"type": "task.output_item.added", "output_index": at, "item": item}));
        for (index, pieces) in parts.iter().enumerate() {
            let part = |text: &str| json!({"type": "text", "text": text});
            let place = json!({"item_id": id, "output_index": at, "summary_index": index});
            self.add(placed(&place, "task.reasoning_summary_item.added", json!({"item": part("")})));
            for piece in pieces {
                self.add(placed(&place, "task.reasoning_summary_text.delta", json!({ "delta": piece })));
            }
            self.add(placed(&place, "task.reasoning_summary_item.done", json!({"item": part(&pieces.concat())})));
        }
        let whole: Vec<Value> = parts.iter().map(|part| json!({"type": "text", "text": part.concat()})).collect();
        let item = json!({"type": "reasoning", "id": id, "summary": whole, "status": "completed"});
        self.add(json!({"type": "task.output_item.done", "output_index": at, "item": item}))
    }

    /// A complete message in several deltas, with citations.
    pub(crate) fn message(&mut self, id: &str, pieces: &[&str], cites: Option<[u32; 3]>) -> &mut Self {
        self.said(id, pieces, cites, json!({"status": "completed"}))
    }

    /// An interrupted message in several deltas.
    pub(crate) fn cut_message(&mut self, id: &str, pieces: &[&str], reason: &str) -> &mut Self {
        self.said(id, pieces, None, json!({"status": "incomplete", "reason": reason}))
    }

    fn said(&mut self, id: &str, pieces: &[&str], cites: Option<[u32; 3]>, end: Value) -> &mut Self {
        let at = self.next();
        let item = json!({"type": "message", "id": id, "role": "assistant", "block_list": [], "status": "in_progress"});
        self.add(json!({"type": "task.output_item.added", "output_index": at, "item": item}));
        let place = json!({"item_id": id, "output_index": at, "block_index": 0});
        self.add(placed(&place, "task.text.added", json!({"item": {"type": "text", "text": ""}})));
        for piece in pieces {
            self.add(placed(&place, "task.text.delta", json!({ "delta": piece })));
        }
        let mut block = json!({"type": "text", "text": pieces.concat()});
        if let Some([reference, start, end]) = cites {
            let kind = "reference_to_block";
            let cited = json!({"type": kind, "reference_id": reference, "start_index": start, "end_index": end});
            block["annotations"] = json!([cited]);
            block["id"] = reference.into();
            let more = json!({"annotation_index": 0, "annotation": cited});
            self.add(placed(&place, "task.text.annotation.added", more));
        }
        self.add(placed(&place, "task.text.done", json!({ "item": block })));
        let mut item = json!({"type": "message", "id": id, "role": "assistant", "block_list": [block]});
        extend(&mut item, end);
        self.add(json!({"type": "task.output_item.done", "output_index": at, "item": item}))
    }

    /// The tools of an MCP server, listed before a step.
    pub(crate) fn mcp_list(&mut self, id: &str, status: &str, action: &Value) -> &mut Self {
        let at = self.next();
        let begun = json!({"type": "hosted_call", "id": id, "name": "mcp_list_tools", "block_list": [],
            "action": {"server_label": action["server_label"]}, "status": "in_progress"});
        let mut done = begun.clone();
        extend(&mut done, json!({"action": action, "state": status, "status": status}));
        self.add(json!({"type": "task.output_item.added", "output_index": at, "item": begun}));
        self.add(json!({"type": "task.output_item.done", "output_index": at, "item": done}))
    }

    /// A complete call: its number, name, kind and approval, and its arguments in several deltas.
    pub(crate) fn call(&mut self, number: u32, name: &str, how: [&str; 2], arguments: &[&str]) -> &mut Self {
        self.labelled_call(number, name, how, arguments, &json!({}))
    }

    /// The same, with more members.
    pub(crate) fn labelled_call(
        &mut self,
        number: u32,
        name: &str,
        how: [&str; 2],
        arguments: &[&str],
        more: &Value,
    ) -> &mut Self {
        let at = self.next();
        let id = format!("fc_R{number}");
        let [kind, gate] = how;
        let item = |arguments: &str, status: &str| {
            let mut item = json!({
                "type": "tool_call", "id": id, "call_id": format!("call_R{number}"), "name": name,
                "arguments": arguments, "kind": kind, "gate": gate, "status": status,
            });
            extend(&mut item, more.clone());
            item
        };
        let added = item("", "in_progress");
        self.add(json!({"type": "task.output_item.added", "output_index": at, "item": added}));
        let place = json!({"item_id": id, "output_index": at});
        for piece in arguments {
            self.add(placed(&place, "task.tool_call_arguments.delta", json!({ "delta": piece })));
        }
        let whole = arguments.concat();
        self.add(placed(&place, "task.tool_call_arguments.done", json!({ "arguments": whole })));
        let done = item(&whole, "completed");
        self.add(json!({"type": "task.output_item.done", "output_index": at, "item": done}))
    }

    pub(crate) fn started(&mut self, number: u32, arguments: &str) -> &mut Self {
        let call = format!("call_R{number}");
        self.add(json!({"type": "task.tool.started", "call_id": call, "arguments": arguments, "attempt": 1}))
    }

    /// A complete result with its blocks.
    pub(crate) fn result(&mut self, number: u32, blocks: Value) -> &mut Self {
        self.answer(number, blocks, json!({"status": "completed"}))
    }

    /// A result with an error.
    pub(crate) fn no_result(&mut self, number: u32, status: &str, code: &str, message: &str) -> &mut Self {
        let error = json!({"code": code, "message": message});
        self.answer(number, json!([]), json!({"status": status, "error": error}))
    }

    fn answer(&mut self, number: u32, blocks: Value, end: Value) -> &mut Self {
        let at = self.result_added(number);
        let id = format!("fco_R{number}");
        let Value::Array(blocks) = blocks else { panic!("{blocks} is no list") };
        for (index, block) in blocks.into_iter().enumerate() {
            let kind = format!("task.{}.done", block["type"].as_str().unwrap());
            let place = json!({"item_id": id, "output_index": at, "block_index": index});
            self.add(placed(&place, &kind, json!({ "item": block })));
        }
        self.result_done(number, at, end)
    }

    /// A result that a sub-agent will complete. Returns its index.
    pub(crate) fn result_added(&mut self, number: u32) -> u32 {
        let at = self.next();
        let (id, call) = (format!("fco_R{number}"), format!("call_R{number}"));
        let item = json!({"type": "tool_result", "id": id, "call_id": call, "block_list": [], "status": "in_progress"});
        self.add(json!({"type": "task.output_item.added", "output_index": at, "item": item}));
        at
    }

    pub(crate) fn result_done(&mut self, number: u32, at: u32, end: Value) -> &mut Self {
        let (id, call) = (format!("fco_R{number}"), format!("call_R{number}"));
        let mut item = json!({"type": "tool_result", "id": id, "call_id": call});
        extend(&mut item, end);
        self.add(json!({"type": "task.output_item.done", "output_index": at, "item": item}))
    }

    pub(crate) fn ask(&mut self, number: u32, name: &str, args: Value) -> &mut Self {
        let mut event = json!({
            "type": "task.approval.requested", "key": format!("apr_R{number}"), "call_id": format!("call_R{number}"),
            "action_requests": [{"name": name}], "review_configs": [{"require_approval": true}],
            "timeout_seconds": 300, "expires_at": 1_710_000_300_000_u64,
        });
        event["action_requests"][0]["args"] = args;
        self.add(event)
    }

    pub(crate) fn decide(&mut self, number: u32, decision: Value, by: &str) -> &mut Self {
        let mut event = json!({"type": "task.approval.resolved", "key": format!("apr_R{number}"), "by": by});
        event["decisions"] = Value::Array(vec![decision]);
        self.add(event)
    }

    /// The run pauses for these: the kind, the call's number, and its task.
    pub(crate) fn pause(&mut self, pending: &[(&str, u32, &str)]) -> &mut Self {
        let pending = pending.iter().map(|(kind, number, task)| {
            let key = (*kind == "approval").then(|| format!("apr_R{number}"));
            json!({"kind": kind, "key": key, "call_id": format!("call_R{number}"), "task_id": task})
        });
        let pending: Vec<Value> = pending.collect();
        self.of("task_R").add(json!({"type": "task.paused", "pending": pending}))
    }

    pub(crate) fn resume(&mut self, by: &str) -> &mut Self {
        self.add(json!({"type": "task.resumed", "by": by}))
    }

    pub(crate) fn completed(&mut self) -> &mut Self {
        self.ended("completed", json!({}))
    }

    /// The task ends.
    pub(crate) fn ended(&mut self, how: &str, more: Value) -> &mut Self {
        let mut event = json!({"type": format!("task.{how}"), "usage": {}, "duration_ms": 7});
        extend(&mut event, more);
        self.add(event)
    }
}

fn placed(place: &Value, kind: &str, more: Value) -> Value {
    let mut event = place.clone();
    event["type"] = kind.into();
    extend(&mut event, more);
    event
}

fn extend(event: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("{more} has no fields") };
    event.as_object_mut().unwrap().extend(more);
}

/// A text block of reference group 1.
pub(crate) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text, "id": 1})
}
