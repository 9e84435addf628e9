//! The schema of each event, as declared by client interfaces.

use super::log::Frame;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

type Verdict = Result<(), String>;

/// Checks that the event has exactly the fields of its type, each of the right JSON type.
pub(crate) fn check(kind: &str, data: &Value) -> Verdict {
    is(data["type"] == kind, "`type` is the type")?;
    let fields: &[&str] = match kind {
        "RUN_STARTED" | "RUN_FINISHED" => &[],
        "RUN_ERROR" => &["message"],
        "STEP_STARTED" | "STEP_FINISHED" => &["stepName"],
        "TEXT_MESSAGE_START" => &["messageId", "role", "stage"],
        "TEXT_MESSAGE_CONTENT" => &["messageId", "delta"],
        "TEXT_MESSAGE_END" => &["messageId", "workerAgentOutput"],
        "TOOL_CALL_RESULT" => &["messageId", "toolCallId", "toolAgentOutput"],
        _ => return Err(format!("{kind} is no type")),
    };
    let all: HashSet<&str> = fields.iter().copied().chain(["type", "threadId", "runId"]).collect();
    let there: HashSet<&str> = keys(data).collect();
    is(all == there, "exactly the fields of its type")?;
    for field in all.into_iter().filter(|field| !field.ends_with("AgentOutput")) {
        is(data[field].is_string(), field)?;
    }
    match kind {
        "TEXT_MESSAGE_START" => is(data["role"] == "assistant", "role"),
        "TEXT_MESSAGE_CONTENT" => is(data["delta"] != "", "a piece says something"),
        "TEXT_MESSAGE_END" => worker(&data["workerAgentOutput"]),
        "TOOL_CALL_RESULT" => tool(&data["toolAgentOutput"], &data["toolCallId"]),
        _ => Ok(()),
    }
}

fn worker(output: &Value) -> Verdict {
    let known = ["status", "answer", "key_points", "result_type", "suggested_actions", "error", "ui_hints"];
    is(keys(output).all(|key| known.contains(&key)), "a known field of a worker's output")?;
    let status = output["status"].as_str().unwrap_or_default();
    is(["success", "partial_success", "failed"].contains(&status), "a worker's status")?;
    is(output["answer"].is_string(), "an answer")?;
    is(status == "success" || output.get("error").is_some(), "what was cut short says why")?;
    output.get("error").map_or(Ok(()), error)
}

fn tool(output: &Value, call: &Value) -> Verdict {
    let known = ["tool_name", "tool_call_id", "tool_call_args", "status", "result_summary", "ui_hints", "error"];
    is(keys(output).all(|key| known.contains(&key)), "a known field of a tool's output")?;
    let status = output["status"].as_str().unwrap_or_default();
    is(["success", "partial", "failure"].contains(&status), "a tool's status")?;
    is(output["tool_name"].as_str().is_some_and(|name| !name.is_empty()), "a tool's name")?;
    is(output["tool_call_id"] == *call, "the same call")?;
    is(output["result_summary"].as_str().is_some_and(|text| text.chars().count() <= 500), "a short summary")?;
    is(output.get("tool_call_args").is_none_or(Value::is_object), "arguments by name")?;
    is(output.get("ui_hints").is_none_or(Value::is_object), "hints by name")?;
    is((status == "failure") == output.get("error").is_some() || status == "success", "a failure says why")?;
    is(status != "partial" || output.get("ui_hints").is_some(), "what waits says for what")?;
    output.get("error").map_or(Ok(()), error)
}

fn error(error: &Value) -> Verdict {
    let known = ["code", "message", "retryable", "details"];
    is(keys(error).all(|key| known.contains(&key)), "a known field of an error")?;
    is(error["code"].is_string() && error["message"].is_string(), "an error's code and message")?;
    is(error.get("retryable").is_none_or(Value::is_boolean), "retryable")?;
    is(error.get("details").is_none_or(Value::is_object), "details by name")
}

/// Checks that everything that starts ends once, and that the deltas of a message add up to its answer. The run must
/// have ended.
pub(crate) fn check_story(frames: &[Frame]) -> Verdict {
    let kinds: Vec<&str> = frames.iter().map(|frame| frame.kind.as_str()).collect();
    is(kinds.first() == Some(&"RUN_STARTED"), "a run begins first")?;
    is(kinds.iter().filter(|kind| **kind == "RUN_STARTED").count() == 1, "and once")?;
    is(kinds.last().is_some_and(|kind| is_end(kind)), "its end is last")?;
    is(kinds.iter().filter(|kind| is_end(kind)).count() == 1, "and comes once")?;
    let mut step: Option<&Value> = None;
    let mut open: HashMap<&str, String> = HashMap::new();
    let mut waiting: HashSet<&str> = HashSet::new();
    let mut answered: HashSet<&str> = HashSet::new();
    for Frame { kind, data } in frames {
        let message = data["messageId"].as_str().unwrap_or_default();
        match kind.as_str() {
            "STEP_STARTED" => is(step.replace(&data["stepName"]).is_none(), "one turn at a time")?,
            "STEP_FINISHED" => is(step.take() == Some(&data["stepName"]), "the turn that began")?,
            "TEXT_MESSAGE_START" => is(open.insert(message, String::new()).is_none(), "a message begins once")?,
            "TEXT_MESSAGE_CONTENT" => {
                let text = open.get_mut(message).ok_or("a piece of no message")?;
                text.push_str(data["delta"].as_str().unwrap_or_default());
            }
            "TEXT_MESSAGE_END" => {
                let text = open.remove(message).ok_or("the end of no message")?;
                is(data["workerAgentOutput"]["answer"] == text, "the pieces are the answer")?;
            }
            "TOOL_CALL_RESULT" if data["toolAgentOutput"]["status"] == "partial" => {
                is(!answered.contains(message), "nothing waits that has its result")?;
                waiting.insert(message);
            }
            "TOOL_CALL_RESULT" => {
                waiting.remove(message);
                is(answered.insert(message), "one final result")?;
            }
            _ => {}
        }
    }
    is(step.is_none() && open.is_empty() && waiting.is_empty(), "nothing is left open")
}

fn is_end(kind: &str) -> bool {
    matches!(kind, "RUN_FINISHED" | "RUN_ERROR")
}

fn keys(value: &Value) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flat_map(|object| object.keys().map(String::as_str))
}

fn is(holds: bool, what: &str) -> Verdict {
    if holds { Ok(()) } else { Err(format!("not so: {what}")) }
}
