//! What the checker has to notice, on histories of a few events.

use super::*;
use serde_json::json;

fn frame(seq: u64, name: &str, rest: Value) -> Frame {
    let mut data = json!({"type": name, "task_id": "task_1", "seq": seq});
    if let (Some(data), Value::Object(rest)) = (data.as_object_mut(), rest) {
        data.extend(rest);
    }
    Frame { id: format!("c-{seq}"), name: name.to_owned(), data: data.to_string() }
}

fn log() -> Vec<Frame> {
    vec![
        frame(1, "task.created", json!({})),
        frame(2, "task.tool.started", json!({"call_id": "call_1"})),
        frame(
            3,
            "task.output_item.done",
            json!({"item": {"type": "tool_result", "call_id": "call_1", "status": "completed"}}),
        ),
        frame(4, "task.completed", json!({})),
    ]
}

fn view(frames: Vec<Frame>, end: ViewEnd) -> ViewedStream {
    let connections = vec!["1@0".to_owned()];
    ViewedStream { viewer: 1, protocol: Protocol::Task, task: "task_1".into(), frames, end, connections }
}

fn problems_of(view: ViewedStream) -> Vec<String> {
    view_problems(&[view], &FinalStreams::from([((Protocol::Task, "task_1".to_owned()), log())]))
}

fn logs(frames: Vec<Frame>) -> BTreeMap<String, Vec<Frame>> {
    BTreeMap::from([("thr_1".to_owned(), frames)])
}

#[test]
fn a_viewer_that_saw_the_whole_stream_or_left_has_no_problem() {
    assert!(problems_of(view(log(), ViewEnd::Complete)).is_empty());
    assert!(problems_of(view(log()[..2].to_vec(), ViewEnd::Left)).is_empty());
}

#[test]
fn a_gap_a_repeat_a_change_and_a_frame_that_is_not_in_the_log_are_noticed() {
    let mut gap = log();
    gap.remove(1);
    let mut repeat = log();
    repeat.insert(1, repeat[0].clone());
    let mut change = log();
    change[2].data.push(' ');
    let mut more = log();
    more.push(frame(5, "task.text.delta", json!({})));
    for frames in [gap, repeat, change, more] {
        assert_eq!(problems_of(view(frames, ViewEnd::Left)).len(), 1);
    }
}

#[test]
fn a_stream_that_ended_early_or_never_is_noticed() {
    assert!(problems_of(view(log()[..3].to_vec(), ViewEnd::Complete))[0].contains("3 of 4"));
    let unfinished = ViewEnd::Unfinished("late".to_owned());
    assert!(problems_of(view(log()[..3].to_vec(), unfinished))[0].contains("late"));
}

#[test]
fn a_log_has_no_gap_and_nothing_after_the_end_of_a_run() {
    assert!(log_problems("thr_1", &log()).is_empty());
    let mut late = log();
    late.push(frame(5, "task.completed", json!({})));
    assert!(log_problems("thr_1", &late)[0].contains("goes on after its end"));
    let mut gap = log();
    gap.remove(1);
    assert!(!log_problems("thr_1", &gap).is_empty());
}

#[test]
fn a_run_that_reached_a_limit_and_a_tool_that_failed_are_noticed() {
    assert!(end_problems(&logs(log())).is_empty());
    assert_eq!(end_problems(&logs(vec![frame(1, "task.incomplete", json!({"reason": "deadline"}))])).len(), 1);
    assert_eq!(end_problems(&logs(vec![frame(1, "task.failed", json!({"error": {"code": "x"}}))])).len(), 1);
    let recovered = frame(1, "task.failed", json!({"error": {"code": "recovery_failed"}}));
    assert!(end_problems(&logs(vec![recovered])).is_empty());
    let failed = json!({"item": {"type": "tool_result", "call_id": "call_1", "status": "failed"}});
    assert_eq!(end_problems(&logs(vec![frame(1, "task.output_item.done", failed)])).len(), 1);
}

#[test]
fn effects_are_counted_and_need_a_recorded_start() {
    let effects = "call_1 {\"mark\":\"a\"}\n";
    assert!(effect_problems(effects, &logs(log())).is_empty());
    assert!(effect_problems(&effects.repeat(2), &logs(log()))[0].contains("took effect 2 times"));
    assert!(effect_problems("", &logs(log()))[0].contains("without an effect"));
    let second = format!("{effects}call_2 {{\"mark\":\"a\"}}\n");
    let problems = effect_problems(&second, &logs(log())).join("\n");
    assert!(problems.contains("call_2 took effect, but its start is not in the log"), "{problems}");
    assert!(problems.contains("the model's call {\"mark\":\"a\"} took effect 2 times"), "{problems}");
    let mut twice = log();
    twice.push(twice[1].clone());
    assert!(effect_problems(effects, &logs(twice))[0].contains("was started 2 times"));
}

#[test]
fn an_acknowledged_decision_is_the_one_in_the_log() {
    let resolved =
        |decision: &str| frame(1, "task.approval.resolved", json!({"key": "apr_1", "decisions": [{"type": decision}]}));
    let told = [AcknowledgedDecision { key: "apr_1".into(), decision: "approve" }];
    assert!(decision_problems(&told, &logs(vec![resolved("approve")])).is_empty());
    assert_eq!(decision_problems(&told, &logs(vec![resolved("reject")])).len(), 1);
    assert_eq!(decision_problems(&told, &logs(vec![])).len(), 1);
    assert_eq!(decision_problems(&told, &logs(vec![resolved("approve"), resolved("approve")])).len(), 1);
}

fn record(seq: u64, epoch: i64) -> LoggedRecord {
    LoggedRecord { thread: "thr_1".into(), seq, epoch }
}

#[test]
fn records_have_no_gap_and_no_older_epoch() {
    assert!(record_problems(&[record(1, 4), record(2, 4), record(3, 6)]).is_empty());
    assert!(record_problems(&[record(1, 4), record(3, 4)])[0].contains("after record Some(1) comes 3"));
    assert!(record_problems(&[record(1, 6), record(2, 4)])[0].contains("epoch 4 after 6"));
}

#[test]
fn only_a_fault_of_its_node_explains_that_a_run_moves() {
    let now = Instant::now();
    let term = |node: &str| Term { node: node.to_owned(), seen: now };
    let terms = BTreeMap::from([(("thr_1".to_owned(), 4), term("a/1")), (("thr_1".to_owned(), 6), term("b/1"))]);
    let records = [record(1, 4), record(2, 6)];
    let window = |node: &str| FaultWindow { node: Some(node.to_owned()), begun: now, ended: Some(now) };
    let problems = |windows: &[FaultWindow]| takeover_problems(&records, &logs(log()), &terms, windows);
    assert_eq!(problems(&[]).len(), 1);
    assert_eq!(problems(&[window("b/")]).len(), 1);
    assert!(problems(&[window("a/")]).is_empty());
    let paused = logs(vec![frame(1, "task.paused", json!({}))]);
    assert!(takeover_problems(&records, &paused, &terms, &[]).is_empty());
}

#[test]
fn a_waiting_request_gets_the_status_of_the_run() {
    let ends = BTreeMap::from([("task_1".to_owned(), "completed".to_owned())]);
    let wait = |status: &str| [("task_1".to_owned(), status.to_owned())];
    assert!(wait_problems(&wait("completed"), &ends).is_empty());
    assert_eq!(wait_problems(&wait("failed"), &ends).len(), 1);
}
