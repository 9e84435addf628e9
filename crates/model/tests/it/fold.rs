//! Single decisions of the fold, each with the smallest log that shows it.

use model::event::{Event, StopReason};
use model::fold::{FoldError, RunFold};
use model::history::HistoryEntry;
use model::record::PrivatePayload;
use model::thread::{ThreadReplay, history_entries};
use model::usage::Usage;
use model::{Epoch, Record, Seq, TaskId, ThreadId};
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use serde_json::{Value, json};

pub(crate) const ROOT: &str = "task_1";

pub(crate) fn event(value: Value) -> Event {
    let text = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn try_push(run: &mut RunFold, value: Value) -> Result<(), FoldError> {
    run.apply_event(run.seq.next(), 5, &event(value), None)
}

fn created(task: &str, parent: Option<&str>) -> Value {
    let spec = json!({"thread_id": "thr_1", "agent": "demo", "model": "m", "input": [], "parent_task_id": parent});
    json!({"type": "task.created", "task_id": task, "task": spec})
}

pub(crate) fn step_done(step: u32, stop: &str) -> Value {
    json!({"type": "task.step.done", "task_id": ROOT, "step": step, "model": "m", "stop_reason": stop, "usage": {}})
}

pub(crate) fn item(kind: &str, index: u32, item: Value) -> Value {
    let mut event = json!({"type": format!("task.output_item.{kind}"), "task_id": ROOT, "output_index": index});
    event["item"] = item;
    event
}

/// A run whose first step is open, followed by these events.
pub(crate) fn run(events: impl IntoIterator<Item = Value>) -> RunFold {
    let begin = [
        created(ROOT, None),
        json!({"type": "task.started", "task_id": ROOT}),
        json!({"type": "task.step.started", "task_id": ROOT, "step": 1, "attempt": 1}),
    ];
    let mut run = RunFold::default();
    for value in begin.into_iter().chain(events) {
        assert_eq!(try_push(&mut run, value.clone()), Ok(()), "{value}");
    }
    run
}

/// A complete call and the end of its step.
pub(crate) fn call() -> [Value; 4] {
    let call = |arguments: &str| json!({"type": "tool_call", "id": "fc_1", "call_id": "call_1", "name": "t", "arguments": arguments});
    let done = json!({"type": "task.tool_call_arguments.done", "task_id": ROOT, "item_id": "fc_1", "output_index": 0, "arguments": "{}"});
    [item("added", 0, call("")), done, item("done", 0, call("{}")), step_done(1, "tool_calls")]
}

pub(crate) fn result(id: &str, call_id: &str) -> Value {
    json!({"type": "tool_result", "id": id, "call_id": call_id, "block_list": []})
}

pub(crate) fn refuses(run: &RunFold, value: Value) {
    let text = value.to_string();
    let mut after = run.clone();
    assert_eq!(try_push(&mut after, value), Err(FoldError), "{text}");
    assert_eq!(crate::laws::without_counters(after, run), *run, "{text}");
}

#[test]
fn a_call_is_answered_once_and_only_by_its_own_task() {
    let open = run(call());
    refuses(&open, item("added", 1, result("fco_2", "call_2")));
    let answered = run(call().into_iter().chain([item("added", 1, result("fco_1", "call_1"))]));
    refuses(&answered, item("added", 2, result("fco_3", "call_1")));
    refuses(&answered, item("done", 1, result("fco_1", "call_2")));
}

#[test]
fn only_results_open_reference_groups_with_their_text_and_images() {
    let place = |id: &str, index: u32, kind: &str, block: Value| json!({"type": format!("task.{kind}.done"), "task_id": ROOT, "item_id": id, "output_index": index, "block_index": 0, "item": block});
    let text = json!({"type": "text", "text": "a", "id": 3});
    let image = json!({"type": "image", "image_url": {"url": "data:,x"}, "id": 4});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant"});
    for (kind, block, group) in [("text", text, 3), ("image", image, 4)] {
        let said = run([item("added", 0, message.clone()), place("msg_1", 0, kind, block.clone())]);
        assert_eq!(said.reference_count, 0, "{kind}");
        let result = item("added", 1, result("fco_1", "call_1"));
        let given = run(call().into_iter().chain([result, place("fco_1", 1, kind, block)]));
        assert_eq!(given.reference_count, group, "{kind}");
    }
}

#[test]
fn a_sub_agent_belongs_to_a_call_of_its_parent() {
    let open = run(call());
    refuses(&open, created("call_2", Some(ROOT)));
    refuses(&open, created("call_1", Some("task_2")));
    let mut with_child = open;
    assert_eq!(try_push(&mut with_child, created("call_1", Some(ROOT))), Ok(()));
    refuses(&with_child, created("call_1", Some(ROOT)));
}

#[test]
fn a_task_does_not_end_before_its_sub_agents() {
    let completed = |task: &str| json!({"type": "task.completed", "task_id": task, "usage": {}, "duration_ms": 0});
    let mut open = run(call());
    try_push(&mut open, created("call_1", Some(ROOT))).unwrap();
    refuses(&open, completed(ROOT));
    try_push(&mut open, completed("call_1")).unwrap();
    assert_eq!(try_push(&mut open, completed(ROOT)), Ok(()));
}

#[test]
fn a_misfit_changes_nothing() {
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant"});
    let text = json!({"type": "text", "text": ""});
    let place = json!({"task_id": ROOT, "item_id": "msg_1", "output_index": 0, "block_index": 0});
    let at = |kind: &str, more: Value| {
        let mut event = place.as_object().unwrap().clone();
        event.insert("type".to_owned(), kind.into());
        event.extend(more.as_object().unwrap().clone());
        Value::Object(event)
    };
    let open = run([item("added", 0, message)]);
    refuses(&open, at("task.text.added", json!({"block_index": 1, "item": text})));
    let mut open = open;
    try_push(&mut open, at("task.text.added", json!({"item": text}))).unwrap();
    let annotation = json!({"type": "file_citation", "file_id": "f", "index": 0});
    refuses(&open, at("task.text.annotation.added", json!({"annotation_index": 1, "annotation": annotation})));
    refuses(&open, json!({"type": "task.state.snapshot", "task_id": "task_2", "state": {}}));
    refuses(&open, json!({"type": "task.state.delta", "task_id": ROOT, "delta": [{"op": "remove", "path": "/x"}]}));

    let reasoning = run([item("added", 0, json!({"type": "reasoning", "id": "rs_1"}))]);
    let part = json!({"task_id": ROOT, "item_id": "rs_1", "output_index": 0, "summary_index": 1, "item": text});
    for kind in ["task.reasoning_summary_item.added", "task.reasoning_summary_item.done"] {
        let mut part = part.clone();
        part["type"] = kind.into();
        refuses(&reasoning, part);
    }
}

#[test]
fn input_before_the_first_step_is_read() {
    let said = |text: &str| json!([{"id": "msg_2", "role": "user", "content": [{"type": "text", "text": text}]}]);
    let added = |text: &str| json!({"type": "task.input.added", "task_id": ROOT, "input": said(text)});
    let mut run = RunFold::default();
    for value in [created(ROOT, None), json!({"type": "task.started", "task_id": ROOT}), added("early")] {
        try_push(&mut run, value).unwrap();
    }
    try_push(&mut run, json!({"type": "task.step.started", "task_id": ROOT, "step": 1, "attempt": 1})).unwrap();
    for value in [added("during"), step_done(1, "stop")] {
        try_push(&mut run, value).unwrap();
    }
    let texts: Vec<String> = history_entries(run.root().unwrap()).iter().map(|entry| format!("{entry:?}")).collect();
    assert_eq!(texts.len(), 2);
    assert!(texts[0].contains("early") && texts[1].contains("during"), "{texts:?}");
}

#[test]
fn tokens_of_a_turn_that_never_ends_are_kept() {
    let mut run = run([]);
    let usage = Usage { output_tokens: 7, ..Usage::default() };
    let private = PrivatePayload { usage: Some(usage), ..PrivatePayload::default() };
    let custom = event(json!({"type": "task.custom", "task_id": ROOT, "name": "n", "value": 1}));
    run.apply_event(run.seq.next(), 5, &custom, Some(&private)).unwrap();
    assert_eq!(run.root().unwrap().steps[0].usage, usage);
    assert_eq!(run.task_object(&TaskId::from(ROOT)).unwrap().usage, Usage::default(), "nobody outside is told yet");
}

#[test]
fn an_interrupted_step_leaves_its_items_as_their_done_events_said() {
    let message = |status: &str, reason: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "reason": reason});
    let items = |status: &str, reason: Value| {
        [
            item("added", 0, message("in_progress", Value::Null)),
            item("done", 0, message(status, reason)),
            step_done(1, "error"),
        ]
    };
    let reason = |run: RunFold| serde_json::to_value(&run.root().unwrap().items[0].item).unwrap();
    let whole = reason(run(items("completed", Value::Null)));
    assert_eq!((&whole["status"], &whole["reason"]), (&json!("completed"), &Value::Null));
    let limited = reason(run(items("incomplete", json!("limit"))));
    assert_eq!((&limited["status"], &limited["reason"]), (&json!("incomplete"), &json!("limit")));
}

#[test]
fn history_has_no_calls_of_incomplete_steps() {
    for stop in ["max_tokens", "error"] {
        let [added, arguments, done, _] = call();
        let run = run([added, arguments, done, step_done(1, stop)]);
        let called =
            history_entries(run.root().unwrap()).iter().any(|entry| matches!(entry, HistoryEntry::Call { .. }));
        assert!(!called, "{stop}");
        assert_eq!(run.root().unwrap().steps[0].stop_reason.map(StopReason::is_complete), Some(false));
    }
}

#[test]
fn a_gap_is_a_misfit() {
    let mut run = run([]);
    let custom = event(json!({"type": "task.custom", "task_id": ROOT, "name": "n", "value": 1}));
    assert_eq!(run.apply_event(run.seq.plus(2), 5, &custom, None), Err(FoldError));
    assert_eq!(run.fold_errors, 1);
}

#[test]
fn between_runs_only_thread_events_fit() {
    let thread = ThreadId::from("thr_1");
    let push = |replay: &mut ThreadReplay, at: u64, value: Value| {
        let seq = replay.thread.seq.next();
        let bytes = serde_json::to_vec(&value).unwrap();
        let place =
            model::record::RecordHeader { seq, at, run: TaskId::from(ROOT), epoch: Epoch(1), format: 1, checksum: 0 };
        replay.push(&Record::from_stored(place, bytes.into(), Default::default()));
    };
    let mut replay = ThreadReplay::default();
    push(&mut replay, 7, json!({"type": "thread.run.hidden", "run_id": ROOT}));
    assert_eq!((replay.thread.seq, replay.thread.at, replay.thread.fold_errors), (Seq(1), 7, 0));
    push(&mut replay, 8, json!({"type": "thread.telepathy"}));
    push(&mut replay, 8, json!({"type": "task.started", "task_id": ROOT}));
    assert_eq!((replay.thread.seq, replay.thread.fold_errors), (Seq(3), 2), "{thread}");
}

/// Records of the next run must not be older than those of the last one.
#[test]
fn a_thread_remembers_the_time_of_its_last_record() {
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::small());
        let mut replay = ThreadReplay::default();
        log.iter().for_each(|record| replay.push(record));
        assert_eq!(replay.thread.at, log.last().unwrap().at, "SEED={seed}");
    }
}

/// A text that cites has the `id` of the group that it cites first. Logs that were written before say none in their
/// `done` events: they fold, and their items are as they were told.
#[test]
fn a_text_that_cites_has_the_id_of_its_first_reference() {
    let annotation = |index: u32, annotation: Value| {
        let place = json!({"task_id": ROOT, "item_id": "msg_1", "output_index": 0, "block_index": 0});
        let mut event =
            json!({"type": "task.text.annotation.added", "annotation_index": index, "annotation": annotation});
        event.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        event
    };
    let cites =
        |group: u32| json!({"type": "reference_to_block", "reference_id": group, "start_index": 0, "end_index": 4});
    let file = json!({"type": "file_citation", "file_id": "f", "index": 0});
    let text = |kind: &str, item: Value| json!({"type": kind, "task_id": ROOT, "item_id": "msg_1", "output_index": 0, "block_index": 0, "item": item});
    let message = |blocks: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "block_list": blocks});
    let mut open = run([
        item("added", 0, message(json!([]))),
        text("task.text.added", json!({"type": "text", "text": ""})),
        annotation(0, file),
    ]);
    let first_id = |run: &RunFold| {
        let object = serde_json::to_value(&run.root().unwrap().items[0].item).unwrap();
        object["block_list"][0]["id"].clone()
    };
    assert_eq!(first_id(&open), Value::Null, "a file is not a reference");
    try_push(&mut open, annotation(1, cites(3))).unwrap();
    try_push(&mut open, annotation(2, cites(2))).unwrap();
    assert_eq!(first_id(&open), 3);

    let mut old = open;
    try_push(&mut old, text("task.text.done", json!({"type": "text", "text": "[^3]"}))).unwrap();
    assert_eq!(first_id(&old), 3, "a `done` that leaves it out keeps it");
    try_push(&mut old, item("done", 0, message(json!([{"type": "text", "text": "[^3]"}])))).unwrap();
    assert_eq!((first_id(&old), old.fold_errors), (Value::Null, 0), "the item is what its `done` says");
}
