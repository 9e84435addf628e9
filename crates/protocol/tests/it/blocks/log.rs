//! A builder for logs: `Log::new().step(1).say(&["Hi"]).stop().completed()`. Ids are `task_R`, `msg_R1`, `call_R2`…

use model::record::RecordDraft;
use model::seq::Epoch;
use model::{Event, Record, Seq, TaskId, ThreadId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The start time of the log: 1710000000.01 s.
const BEGAN: u64 = 1_710_000_000_010;

pub(super) struct Log {
    thread: ThreadId,
    run: TaskId,
    /// The current task.
    task: String,
    /// The number of items of each task.
    items: BTreeMap<String, u32>,
    /// The next number for an id.
    numbers: u32,
    records: Vec<Record>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self::begun("agent")
    }

    pub(super) fn begun(display_mode: &str) -> Self {
        let mut log = Self::empty();
        log.begin(display_mode, &json!([]));
        log
    }

    /// A run with these messages.
    pub(super) fn with_input(input: &Value) -> Self {
        let mut log = Self::empty();
        log.begin("agent", input);
        log
    }

    fn empty() -> Self {
        Self {
            thread: ThreadId::from("thr_1"),
            run: TaskId::from("task_R"),
            task: "task_R".to_owned(),
            items: BTreeMap::new(),
            numbers: 0,
            records: Vec::new(),
        }
    }

    fn begin(&mut self, display_mode: &str, input: &Value) {
        let task = json!({"thread_id": "thr_1", "agent": "demo", "model": "scripted/demo", "input": input,
            "display_mode": display_mode});
        self.push(json!({"type": "task.created", "task": task}));
        self.push(json!({"type": "task.started"}));
    }

    /// The thread's next run.
    pub(super) fn again(mut self, run: &str) -> Self {
        (self.run, self.task, self.numbers) = (TaskId::from(run), run.to_owned(), 0);
        self.begin("agent", &json!([]));
        self
    }

    pub(super) fn run(&self) -> &str {
        self.run.as_str()
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    fn push(&mut self, mut event: Value) {
        event.as_object_mut().unwrap().entry("task_id").or_insert_with(|| self.task.clone().into());
        let text = event.to_string();
        let event: Event = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let seq = Seq(self.records.len() as u64 + 1);
        let draft = RecordDraft { seq, at: BEGAN + seq.0 - 1, event, private: None };
        self.records.push(Record::seal(&self.thread, &self.run, Epoch(1), draft));
    }

    /// Adds an event to the current task as it is.
    pub(super) fn event(mut self, event: Value) -> Self {
        self.push(event);
        self
    }

    /// The index of the next item in its task's output.
    fn place(&mut self) -> u32 {
        let count = self.items.entry(self.task.clone()).or_default();
        *count += 1;
        *count - 1
    }

    fn suffix(&self) -> String {
        self.run.as_str().trim_start_matches("task_").to_owned()
    }

    fn number(&mut self, prefix: &str) -> String {
        self.numbers += 1;
        format!("{prefix}_{}{}", self.suffix(), self.numbers)
    }

    pub(super) fn step(self, step: u32) -> Self {
        self.event(json!({"type": "task.step.started", "step": step, "attempt": 1}))
    }

    fn step_done(self, step: u32, stop_reason: &str) -> Self {
        let usage = json!({"input_tokens": 1, "cached_tokens": 0, "cache_write_tokens": 0, "output_tokens": 1,
            "reasoning_tokens": 0});
        self.event(json!({"type": "task.step.done", "step": step, "model": "scripted/demo", "stop_reason": stop_reason,
            "usage": usage}))
    }

    pub(super) fn done(self, step: u32) -> Self {
        self.step_done(step, "stop")
    }

    pub(super) fn calls(self, step: u32) -> Self {
        self.step_done(step, "tool_calls")
    }

    pub(super) fn cut(self, step: u32, why: &str) -> Self {
        self.step_done(step, why)
    }

    /// A reasoning item with these parts, each in several deltas.
    pub(super) fn think(mut self, parts: &[&[&str]]) -> Self {
        let (id, at) = (self.number("rs"), self.place());
        self.push(json!({"type": "task.output_item.added", "output_index": at,
            "item": {"type": "reasoning", "id": id, "summary": []}}));
        let mut whole = Vec::new();
        for (part, pieces) in parts.iter().enumerate() {
            let place = json!({"item_id": id, "output_index": at, "summary_index": part});
            let event = |kind: &str, more: Value| merged(json!({"type": kind}), [place.clone(), more]);
            let text = |text: &str| json!({"item": {"type": "text", "text": text}});
            self.push(event("task.reasoning_summary_item.added", text("")));
            for piece in *pieces {
                self.push(event("task.reasoning_summary_text.delta", json!({"delta": piece})));
            }
            self.push(event("task.reasoning_summary_item.done", text(&pieces.concat())));
            whole.push(json!({"type": "text", "text": pieces.concat()}));
        }
        self.event(json!({"type": "task.output_item.done", "output_index": at,
            "item": {"type": "reasoning", "id": id, "summary": whole, "status": "completed"}}))
    }

    /// A message of one text in these deltas.
    pub(super) fn say(self, pieces: &[&str]) -> Self {
        self.message(&[pieces], json!({"status": "completed"}))
    }

    /// A message of these texts, each in several deltas, with this status.
    pub(super) fn message(mut self, texts: &[&[&str]], end: Value) -> Self {
        let (id, at) = (self.number("msg"), self.place());
        let item = json!({"type": "message", "id": id, "role": "assistant"});
        self.push(json!({"type": "task.output_item.added", "output_index": at,
            "item": merged(item.clone(), [json!({"block_list": []})])}));
        let mut whole = Vec::new();
        for (block, pieces) in texts.iter().enumerate() {
            let place = json!({"item_id": id, "output_index": at, "block_index": block});
            let event = |kind: &str, more: Value| merged(json!({"type": kind}), [place.clone(), more]);
            let text = |text: &str| json!({"item": {"type": "text", "text": text}});
            self.push(event("task.text.added", text("")));
            for piece in *pieces {
                self.push(event("task.text.delta", json!({"delta": piece})));
            }
            self.push(event("task.text.done", text(&pieces.concat())));
            whole.push(json!({"type": "text", "text": pieces.concat()}));
        }
        let done = merged(item, [json!({"block_list": whole}), end]);
        self.event(json!({"type": "task.output_item.done", "output_index": at, "item": done}))
    }

    /// A call with complete arguments. It is `call_R<n>`, where `n` counts everything that has a number.
    pub(super) fn call(mut self, name: &str, arguments: &str, more: Value) -> Self {
        let (id, at) = (self.number("fc"), self.place());
        let call_id = id.replacen("fc_", "call_", 1);
        let call = merged(json!({"type": "tool_call", "id": id, "call_id": call_id, "name": name}), [more]);
        self.push(json!({"type": "task.output_item.added", "output_index": at,
            "item": merged(call.clone(), [json!({"arguments": ""})])}));
        self.push(json!({"type": "task.tool_call_arguments.done", "item_id": id, "output_index": at,
            "arguments": arguments}));
        self.event(json!({"type": "task.output_item.done", "output_index": at,
            "item": merged(call, [json!({"arguments": arguments, "status": "completed"})])}))
    }

    pub(super) fn started(self, call_id: &str) -> Self {
        self.event(json!({"type": "task.tool.started", "call_id": call_id, "arguments": "{}", "attempt": 1}))
    }

    /// A result with these blocks and these further fields.
    pub(super) fn result(self, call_id: &str, blocks: &[Value], end: Value) -> Self {
        let mut log = self.result_begins(call_id);
        let (id, at) = (result_id(call_id), log.items[&log.task] - 1);
        for (block, item) in blocks.iter().enumerate() {
            let kind = if item["type"] == "image" { "task.image.done" } else { "task.text.done" };
            log.push(json!({"type": kind, "item_id": id, "output_index": at, "block_index": block, "item": item}));
        }
        log.result_ends(call_id, at, merged(json!({"block_list": blocks}), [end]))
    }

    pub(super) fn result_begins(mut self, call_id: &str) -> Self {
        let at = self.place();
        self.event(json!({"type": "task.output_item.added", "output_index": at,
            "item": {"type": "tool_result", "id": result_id(call_id), "call_id": call_id, "block_list": []}}))
    }

    pub(super) fn result_ends(self, call_id: &str, at: u32, end: Value) -> Self {
        let item = json!({"type": "tool_result", "id": result_id(call_id), "call_id": call_id, "status": "completed"});
        self.event(json!({"type": "task.output_item.done", "output_index": at, "item": merged(item, [end])}))
    }

    /// Adds an item of any shape.
    pub(super) fn item(mut self, item: &Value) -> Self {
        self.numbers += 1;
        let at = self.place();
        self.event(json!({"type": "task.output_item.added", "output_index": at, "item": item}))
    }

    /// Switches to the sub-agent of this call.
    pub(super) fn child(mut self, call_id: &str, agent: &str) -> Self {
        let parent = std::mem::replace(&mut self.task, call_id.to_owned());
        let task = json!({"thread_id": "thr_1", "agent": agent, "model": "scripted/demo", "input": [],
            "parent_task_id": parent});
        self.event(json!({"type": "task.created", "task": task})).event(json!({"type": "task.started"}))
    }

    /// Switches to this task.
    pub(super) fn of(mut self, task: &str) -> Self {
        task.clone_into(&mut self.task);
        self
    }

    pub(super) fn ask(self, call_id: &str) -> Self {
        let key = call_id.replacen("call_", "apr_", 1);
        self.event(json!({"type": "task.approval.requested", "key": key, "call_id": call_id,
            "action_requests": [{"name": "execute_trade", "args": {"symbol": "VNM", "quantity": 100}}],
            "review_configs": [{"require_approval": true}], "timeout_seconds": 300, "expires_at": 1_710_000_300_000_u64}))
    }

    /// The pause for a decision and the resumption.
    pub(super) fn decided(self, call_id: &str, decision: &Value) -> Self {
        let key = call_id.replacen("call_", "apr_", 1);
        let pending = json!([{"kind": "approval", "key": key, "call_id": call_id, "task_id": self.task}]);
        self.event(json!({"type": "task.paused", "pending": pending}))
            .event(json!({"type": "task.resumed", "by": "user"}))
            .event(json!({"type": "task.approval.resolved", "key": key, "decisions": [decision], "by": "user"}))
    }

    /// Ends the task: `completed`, or as `more` says.
    pub(super) fn end(self, kind: &str, more: Value) -> Self {
        let usage = json!({"input_tokens": 2, "cached_tokens": 0, "cache_write_tokens": 0, "output_tokens": 2,
            "reasoning_tokens": 0});
        let event = json!({"type": format!("task.{kind}"), "usage": usage, "duration_ms": 3420});
        self.event(merged(event, [more]))
    }

    pub(super) fn completed(self) -> Self {
        self.end("completed", json!({}))
    }
}

pub(super) fn result_id(call_id: &str) -> String {
    call_id.replacen("call_", "fco_", 1)
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn image(url: &str) -> Value {
    json!({"type": "image", "image_url": {"url": url}})
}

fn merged(mut base: Value, more: impl IntoIterator<Item = Value>) -> Value {
    let fields = base.as_object_mut().unwrap();
    for value in more {
        let Value::Object(map) = value else { panic!("{value} is no object") };
        fields.extend(map);
    }
    base
}
