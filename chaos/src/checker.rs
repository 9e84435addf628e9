//! One checker over what every viewer of every protocol saw: ordered, unique, complete, resumable, one terminal event, and
//! tools at most once. Pure functions from histories to problems.

use crate::final_log::{FinalStreams, LoggedRecord};
use crate::history::{AcknowledgedDecision, FaultWindow, Frame, Term, ViewEnd, ViewedStream};
use crate::protocol::{AcknowledgedRun, Protocol, is_terminal};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long after a fault of its node a thread may still be taken over because of it.
const AFTERMATH: Duration = Duration::from_secs(25);

/// The errors of a step that was recovered three times.
const RECOVERY_FAILED: [&str; 2] = ["\"code\":\"interrupted\"", "\"code\":\"recovery_failed\""];

/// What a viewer saw must be the stream as it is now, from its beginning: all of it, or a part if the viewer left.
pub(crate) fn view_problems(views: &[ViewedStream], streams: &FinalStreams) -> Vec<String> {
    views.iter().filter_map(|view| view_problem(view, streams)).collect()
}

fn view_problem(view: &ViewedStream, streams: &FinalStreams) -> Option<String> {
    let name = format!("viewer {} ({}) of {}", view.viewer, view.protocol.name(), view.task);
    // What could not be read was reported.
    let stream = streams.get(&(view.protocol, view.task.clone()))?;
    let differs = view.frames.iter().zip(stream).position(|(seen, kept)| seen != kept);
    if let Some(index) = differs.or_else(|| (view.frames.len() > stream.len()).then_some(stream.len())) {
        let describe = |frames: &[Frame]| frames.get(index).map_or("nothing".to_owned(), describe_frame);
        return Some(format!(
            "{name} saw as frame {index} {}, but the log has {} (connections: {})",
            describe(&view.frames),
            describe(stream),
            view.connections.join(" ")
        ));
    }
    match &view.end {
        ViewEnd::Left => None,
        ViewEnd::Complete if view.frames.len() == stream.len() => None,
        ViewEnd::Complete => Some(format!("{name} ended after {} of {} frames", view.frames.len(), stream.len())),
        ViewEnd::Unfinished(why) => Some(format!("{name} has {} of {} frames: {why}", view.frames.len(), stream.len())),
    }
}

fn describe_frame(frame: &Frame) -> String {
    let data: String = frame.data.chars().take(240).collect();
    format!("{} {} {data}", frame.id, frame.name)
}

/// The log of a thread: numbered without gaps, and each run once, whole, with one terminal event as its last.
pub(crate) fn log_problems(thread: &str, frames: &[Frame]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut ended: Vec<String> = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let data: Value = serde_json::from_str(&frame.data).unwrap_or(Value::Null);
        let seq = data.get("seq").and_then(Value::as_u64);
        if seq != u64::try_from(index + 1).ok() {
            problems.push(format!("{thread}: event {} has the number {seq:?}", index + 1));
        }
        let task = data.get("task_id").and_then(Value::as_str).unwrap_or_default();
        if ended.iter().any(|ended| ended == task) {
            problems.push(format!("{thread}: {task} goes on after its end with {}", describe_frame(frame)));
        }
        if is_terminal(&frame.name) {
            ended.push(task.to_owned());
        }
    }
    problems
}

/// No run has a limit that it could reach, so each is completed or cancelled. A run that was recovered too often may have failed.
pub(crate) fn end_problems(logs: &BTreeMap<String, Vec<Frame>>) -> Vec<String> {
    let ends = logs.values().flatten().filter(|frame| is_terminal(&frame.name));
    let wrong = ends.filter(|frame| match frame.name.as_str() {
        "task.completed" | "task.cancelled" => false,
        "task.failed" => !RECOVERY_FAILED.iter().any(|code| frame.data.contains(code)),
        _ => true,
    });
    // The tool never fails: it ends with a result, or nobody knows after a crash how it ended.
    let failed = logs.values().flatten().filter(|frame| {
        let data = &frame.data;
        frame.name == "task.output_item.done"
            && data.contains("\"type\":\"tool_result\"")
            && data.contains("\"status\":\"failed\"")
    });
    let wrong = wrong.map(|frame| format!("a run ended with {}", describe_frame(frame)));
    wrong.chain(failed.map(|frame| format!("a tool failed: {}", frame.data))).collect()
}

/// A tool's start comes before its effect, each call is started and takes effect at most once, and a result that was recorded as
/// successful has its effect.
pub(crate) fn effect_problems(effects: &str, logs: &BTreeMap<String, Vec<Frame>>) -> Vec<String> {
    let (mut calls, mut marks): (BTreeMap<&str, usize>, BTreeMap<&str, usize>) = Default::default();
    for (call, mark) in effects.lines().filter_map(|line| line.split_once(' ')) {
        *calls.entry(call).or_default() += 1;
        *marks.entry(mark).or_default() += 1;
    }
    let (mut started, mut completed): (BTreeMap<String, usize>, Vec<String>) = Default::default();
    for frame in logs.values().flatten() {
        let data: Value = serde_json::from_str(&frame.data).unwrap_or(Value::Null);
        if frame.name == "task.tool.started"
            && let Some(call) = data.get("call_id").and_then(Value::as_str)
        {
            *started.entry(call.to_owned()).or_default() += 1;
        }
        let item = data.get("item");
        let member = |name: &str| item.and_then(|item| item.get(name)).and_then(Value::as_str);
        if frame.name == "task.output_item.done"
            && member("type") == Some("tool_result")
            && member("status") == Some("completed")
            && let Some(call) = member("call_id")
        {
            completed.push(call.to_owned());
        }
    }
    let mut problems = Vec::new();
    let mut expect = |is_right: bool, problem: String| {
        if !is_right {
            problems.push(problem);
        }
    };
    for (call, count) in &calls {
        expect(*count == 1, format!("{call} took effect {count} times"));
        expect(started.contains_key(*call), format!("{call} took effect, but its start is not in the log"));
    }
    for (mark, count) in &marks {
        expect(*count == 1, format!("the model's call {mark} took effect {count} times"));
    }
    for (call, count) in &started {
        expect(*count == 1, format!("{call} was started {count} times"));
    }
    for call in &completed {
        expect(calls.contains_key(call.as_str()), format!("{call} was recorded as completed without an effect"));
    }
    problems
}

/// Each question is decided once, and as everybody was told who decided it.
pub(crate) fn decision_problems(
    decisions: &[AcknowledgedDecision],
    logs: &BTreeMap<String, Vec<Frame>>,
) -> Vec<String> {
    let mut resolved: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for frame in logs.values().flatten().filter(|frame| frame.name == "task.approval.resolved") {
        let data: Value = serde_json::from_str(&frame.data).unwrap_or(Value::Null);
        let text = |pointer: &str| data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        resolved.entry(text("/key")).or_default().push(text("/decisions/0/type"));
    }
    let twice = resolved.iter().filter(|(_, decisions)| decisions.len() != 1);
    let mut problems: Vec<String> =
        twice.map(|(key, decisions)| format!("{key} was decided {} times", decisions.len())).collect();
    for AcknowledgedDecision { key, decision } in decisions {
        match resolved.get(key).and_then(|decisions| decisions.first()) {
            Some(recorded) if recorded == decision => {}
            recorded => problems.push(format!("{key}: `{decision}` was acknowledged, the log has {recorded:?}")),
        }
    }
    problems
}

/// The records of a thread are numbered without gaps, and no record has an older epoch than one before it.
pub(crate) fn record_problems(records: &[LoggedRecord]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut before: Option<&LoggedRecord> = None;
    for record in records {
        let LoggedRecord { thread, seq, epoch } = record;
        let last = before.filter(|before| before.thread == *thread);
        if *seq != last.map_or(1, |last| last.seq + 1) {
            problems.push(format!("{thread}: after record {:?} comes {seq}", last.map(|last| last.seq)));
        }
        if let Some(last) = last.filter(|last| last.epoch > *epoch) {
            problems.push(format!("{thread}: record {seq} has epoch {epoch} after {}", last.epoch));
        }
        before = Some(record);
    }
    problems
}

/// A node takes a thread over in the middle of a run only if the other node had a fault.
pub(crate) fn takeover_problems(
    records: &[LoggedRecord],
    logs: &BTreeMap<String, Vec<Frame>>,
    terms: &BTreeMap<(String, i64), Term>,
    windows: &[FaultWindow],
) -> Vec<String> {
    let mut problems = Vec::new();
    for pair in records.windows(2) {
        let [before, after] = pair else { continue };
        if before.thread != after.thread || before.epoch == after.epoch {
            continue;
        }
        let frame = logs.get(&before.thread).and_then(|frames| frames.get(usize::try_from(before.seq - 1).ok()?));
        // A run that waits for a person is nobody's, and so is a thread between two runs.
        if frame.is_none_or(|frame| frame.name == "task.paused" || is_terminal(&frame.name)) {
            continue;
        }
        let term = |record: &LoggedRecord| terms.get(&(record.thread.clone(), record.epoch));
        let (Some(old), Some(new)) = (term(before), term(after)) else { continue };
        if old.node != new.node && !explains(windows, &old.node, new.seen) {
            let LoggedRecord { thread, seq, .. } = after;
            problems.push(format!(
                "{thread}: {} took it over from {}, which had no fault, at record {seq}",
                new.node, old.node
            ));
        }
    }
    problems
}

fn explains(windows: &[FaultWindow], node: &str, at: Instant) -> bool {
    windows.iter().any(|window| {
        let is_of_node = window.node.as_ref().is_none_or(|prefix| node.starts_with(prefix.as_str()));
        is_of_node && window.begun <= at && window.ended.is_none_or(|ended| at < ended + AFTERMATH)
    })
}

/// Waiting requests were answered with the status that the run has.
pub(crate) fn wait_problems(waits: &[(String, String)], ends: &BTreeMap<String, String>) -> Vec<String> {
    let wrong = waits.iter().filter(|(task, status)| ends.get(task) != Some(status));
    wrong
        .map(|(task, status)| format!("{task}: a waiting request got `{status}`, the run is {:?}", ends.get(task)))
        .collect()
}

/// The log of each thread, by its id.
pub(crate) fn thread_logs(
    streams: &FinalStreams,
    runs: &BTreeMap<String, AcknowledgedRun>,
) -> BTreeMap<String, Vec<Frame>> {
    let mut logs: BTreeMap<String, Vec<Frame>> = BTreeMap::new();
    for ((protocol, task), frames) in streams {
        let Some(run) = runs.get(task).filter(|_| *protocol == Protocol::Thread) else { continue };
        let log = logs.entry(run.thread.clone()).or_default();
        // A stream of the thread ends with the run that it was read for.
        if frames.len() > log.len() {
            log.clone_from(frames);
        }
    }
    logs
}

#[cfg(test)]
#[path = "checker_tests.rs"]
mod tests;
