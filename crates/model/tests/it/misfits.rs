//! Invalid records, rule by rule: each record here violates exactly one rule.

use crate::fold::{ROOT, call, item, refuses, result, run, step_done, try_push};
use model::item::Item;
use serde_json::{Value, json};

fn message() -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant"})
}

fn text_added(item_id: &str) -> Value {
    let block = json!({"type": "text", "text": ""});
    json!({"type": "task.text.added", "task_id": ROOT, "item_id": item_id, "output_index": 0, "block_index": 0, "item": block})
}

fn step_started(step: u32) -> Value {
    json!({"type": "task.step.started", "task_id": ROOT, "step": step, "attempt": 1})
}

fn completed() -> Value {
    json!({"type": "task.completed", "task_id": ROOT, "usage": {}, "duration_ms": 0})
}

#[test]
fn a_block_belongs_to_an_open_item() {
    let open = run([item("added", 0, message())]);
    assert_eq!(try_push(&mut open.clone(), text_added("msg_1")), Ok(()));
    refuses(&open, text_added("msg_2"));
    refuses(&run([item("added", 0, message()), item("done", 0, message())]), text_added("msg_1"));
}

#[test]
fn an_item_is_appended_with_a_new_id() {
    let open = run([item("added", 0, message())]);
    let mut other = message();
    other["id"] = "msg_2".into();
    assert_eq!(try_push(&mut open.clone(), item("added", 1, other.clone())), Ok(()));
    refuses(&open, item("added", 2, other.clone()));
    refuses(&open, item("added", 0, other));
    refuses(&open, item("added", 1, message()));
}

#[test]
fn a_call_id_is_used_once() {
    let called = run(call());
    let again = json!({"type": "tool_call", "id": "fc_2", "call_id": "call_1", "name": "t", "arguments": ""});
    refuses(&called, item("added", 1, again.clone()));
    let mut other = again;
    other["call_id"] = "call_2".into();
    assert_eq!(try_push(&mut run(call()), item("added", 1, other)), Ok(()));
}

#[test]
fn complete_arguments_accept_no_delta() {
    let [added, done, ..] = call();
    let piece = json!({"type": "task.tool_call_arguments.delta", "task_id": ROOT, "item_id": "fc_1", "output_index": 0, "delta": "{"});
    assert_eq!(try_push(&mut run([added.clone()]), piece.clone()), Ok(()));
    let whole = run([added, done.clone()]);
    refuses(&whole, piece);
    refuses(&whole, done);
}

#[test]
fn a_retry_needs_an_open_step() {
    let error = json!({"code": "provider_error", "message": "down"});
    let retrying = |step: u32| json!({"type": "task.retrying", "task_id": ROOT, "step": step, "attempt": 2, "not_before": 1, "error": error});
    assert_eq!(try_push(&mut run([]), retrying(1)), Ok(()));
    refuses(&run([]), retrying(2));
    refuses(&run([step_done(1, "stop")]), retrying(1));
}

#[test]
fn a_step_starts_when_none_is_open_and_the_task_runs() {
    assert_eq!(try_push(&mut run([step_done(1, "stop")]), step_started(2)), Ok(()));
    refuses(&run([]), step_started(2));
    let paused = json!({"type": "task.paused", "task_id": ROOT, "pending": []});
    refuses(&run([step_done(1, "stop"), paused]), step_started(2));
}

#[test]
fn a_step_ends_once_under_its_own_number() {
    refuses(&run([]), step_done(2, "stop"));
    refuses(&run([step_done(1, "stop")]), step_done(1, "stop"));
}

#[test]
fn a_recovery_follows_the_lost_step_and_truncates_existing_output() {
    let recovered =
        |cut: &[&str]| json!({"type": "task.recovered", "task_id": ROOT, "step": 1, "attempt": 2, "cut": cut});
    let said = [item("added", 0, message()), item("done", 0, message())];
    let lost = run(said.clone().into_iter().chain([step_done(1, "lost")]));
    assert_eq!(try_push(&mut lost.clone(), recovered(&["msg_1"])), Ok(()));
    refuses(&lost, recovered(&["msg_2"]));
    refuses(&run(said), recovered(&["msg_1"]));
}

#[test]
fn a_task_ends_with_nothing_open() {
    assert_eq!(try_push(&mut run([step_done(1, "stop")]), completed()), Ok(()));
    refuses(&run([]), completed());
    let answering = run(call().into_iter().chain([item("added", 1, result("fco_1", "call_1"))]));
    refuses(&answering, completed());
}

#[test]
fn the_end_of_a_task_has_its_reason_and_usage() {
    let error = json!({"code": "provider_error", "message": "down"});
    for (kind, more, reason) in [
        ("completed", json!({}), None),
        ("incomplete", json!({"reason": "max_steps"}), Some("max_steps")),
        ("failed", json!({"error": error}), None),
        ("cancelled", json!({"mode": "immediate", "by": "user"}), Some("user")),
    ] {
        let mut end =
            json!({"type": format!("task.{kind}"), "task_id": ROOT, "usage": {"input_tokens": 7}, "duration_ms": 0});
        end.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object = run([step_done(1, "stop"), end]).task_object(&ROOT.into()).unwrap();
        assert_eq!((object.usage.input_tokens, object.reason.as_deref()), (7, reason), "{kind}");
        assert_eq!(object.status.as_str(), kind);
        assert_eq!(object.error.map(|error| error.code), (kind == "failed").then(|| "provider_error".to_owned()));
    }
}

/// Every field that a `done` may leave out, set before it.
#[test]
fn fields_missing_in_a_done_stay_unchanged() {
    let blocks = json!([{"type": "text", "text": "a"}]);
    let items = [
        json!({"type": "reasoning", "id": "i_1", "summary": [{"type": "text", "text": "a"}], "agent": "demo"}),
        json!({"type": "tool_call", "id": "i_1", "call_id": "call_2", "name": "t", "arguments": "{}", "kind": "tool", "display_name": "T", "gate": "never", "agent": "demo"}),
        json!({"type": "tool_result", "id": "i_1", "call_id": "call_1", "block_list": blocks, "summary": "s", "artifact": {"a": 1}, "ui_hints": {"b": 2}, "agent": "demo"}),
        json!({"type": "message", "id": "i_1", "role": "assistant", "block_list": blocks, "phase": "final_answer", "agent": "demo"}),
        json!({"type": "hosted_call", "id": "i_1", "name": "n", "block_list": blocks, "state": "searching", "action": {"q": 1}, "agent": "demo"}),
        json!({"type": "file_processing", "id": "i_1", "files": [], "agent": "demo"}),
    ];
    for before in items {
        let needed = ["type", "id", "call_id", "name", "role", "files"];
        let bare = before.as_object().unwrap().iter().filter(|(name, _)| needed.contains(&name.as_str()));
        let bare: Value =
            bare.map(|(name, value)| (name.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into();
        assert_ne!(before, bare);
        let folded = run(call().into_iter().chain([item("added", 1, before.clone()), item("done", 1, bare)]));
        let kept = &folded.root().unwrap().items[1];
        assert!(kept.done);
        assert_eq!(kept.item, serde_json::from_value::<Item>(before).unwrap());
    }
}
