//! Clients that send answers on their own: when they do, and that they stop.

use super::reducer::Reducer;
use super::{VERSIONS, count_segments, project};
use crate::responses::log::Log;
use model::event::{Event, PendingKind, PendingRequest};
use model::{CallId, Record};
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// `lastAssistantMessageIsCompleteWithToolCalls`.
fn is_complete_with_tool_calls(message: &Value) -> bool {
    let parts = last_step(message);
    let is_own = |part: &&Value| is_call(part) && part["providerExecuted"] != true;
    let Some(last) = parts.iter().rposition(|part| is_own(&part)) else { return false };
    let is_open_text = |part: &Value| part["type"] == "text" && part["state"] != "done";
    !parts[last + 1..].iter().any(is_open_text) && parts.iter().filter(is_own).all(has_output)
}

/// `lastAssistantMessageIsCompleteWithApprovalResponses`.
fn is_complete_with_approvals(message: &Value) -> bool {
    let parts = last_step(message);
    let mut calls = parts.iter().filter(|part| is_call(part));
    let is_answered = |part: &Value| part["state"] == "approval-responded";
    let is_done = |part: &Value| has_output(part) || part["state"] == "output-denied" || is_answered(part);
    calls.clone().any(is_answered) && calls.all(is_done)
}

fn sends(reducer: &Reducer) -> bool {
    let message = reducer.published();
    is_complete_with_tool_calls(&message) || is_complete_with_approvals(&message)
}

fn last_step(message: &Value) -> Vec<Value> {
    let parts = message["parts"].as_array().unwrap();
    let step = parts.iter().rposition(|part| part["type"] == "step-start").map_or(0, |index| index + 1);
    parts[step..].to_vec()
}

fn is_call(part: &Value) -> bool {
    let kind = part["type"].as_str().unwrap();
    kind == "dynamic-tool" || kind.starts_with("tool-")
}

fn has_output(part: &Value) -> bool {
    part["state"] == "output-available" && part["preliminary"] != true || part["state"] == "output-error"
}

/// What the client does before the next segment: it answers what the log has an answer to.
fn answer(reducer: &mut Reducer, pending: &[PendingRequest], answered: &BTreeSet<String>) -> usize {
    let mut count = 0;
    for request in pending {
        let call = request.call_id.as_str();
        let part = reducer.parts().iter_mut().rev().find(|part| part["toolCallId"] == call).expect("the call is shown");
        let key = request.key.as_ref().map_or(call, |key| key.as_str());
        match request.kind {
            PendingKind::ClientTool => {
                assert_eq!(part["state"], "input-available", "{part}");
                assert!(part["type"].as_str().unwrap().starts_with("tool-"), "{part}");
                if answered.contains(key) {
                    part["state"] = "output-available".into();
                    part["output"] = json!("red");
                    count += 1;
                }
            }
            PendingKind::Approval | PendingKind::Question => {
                assert_eq!((&part["state"], &part["approval"]["id"]), (&json!("approval-requested"), &json!(key)));
                if answered.contains(key) {
                    part["state"] = "approval-responded".into();
                    part["approval"]["approved"] = true.into();
                    count += 1;
                }
            }
        }
    }
    count
}

/// The pauses of a run, and the keys of the approvals and the calls of the client that the next segment answers.
fn pauses(records: &[Record]) -> Vec<(Vec<PendingRequest>, BTreeSet<String>)> {
    let mut pauses: Vec<(Vec<PendingRequest>, BTreeSet<String>)> = Vec::new();
    for record in records {
        match record.event() {
            Event::Paused(e) => pauses.push((e.pending.clone(), BTreeSet::new())),
            Event::ApprovalResolved(e) => {
                if let Some((_, answered)) = pauses.last_mut() {
                    answered.insert(e.key.to_string());
                }
            }
            Event::ItemDone(e) => {
                if let (model::item::Item::ToolResult(result), Some((_, answered))) = (&e.item, pauses.last_mut()) {
                    answered.insert(CallId::to_string(&result.call_id));
                }
            }
            _ => {}
        }
    }
    pauses
}

fn runs_of(seed: u64, options: LogOptions) -> Vec<Vec<Record>> {
    let (_, records) = generate_thread_log(seed, options);
    let runs = records.chunk_by(|record, next| record.run == next.run);
    runs.map(<[Record]>::to_vec).collect()
}

#[test]
fn a_client_sends_once_when_everything_is_answered_and_never_else() {
    let mut sent = 0;
    for seed in test_seeds() {
        for records in runs_of(seed, LogOptions::small()).into_iter().chain(runs_of(seed, LogOptions::default())) {
            for version in VERSIONS {
                let (mut reducer, mut follower) = (Reducer::new(version), Reducer::new(version));
                let pauses = pauses(&records);
                for segment in 1..=count_segments(&records) {
                    let chunks = project(&records, (segment, segment), version);
                    reducer.apply_all(&chunks);
                    follower.apply_all(&chunks);
                    let place = format!("seed {seed}, {version:?}, segment {segment}: {:#}", reducer.message);
                    assert!(!sends(&follower), "a client that only reads sends: {place}");
                    assert!(!sends(&reducer), "a client sends before it has an answer: {place}");
                    let Some((pending, answered)) = pauses.get(segment as usize - 1) else { continue };
                    let count = answer(&mut reducer, pending, answered);
                    assert_eq!(sends(&reducer), count == pending.len(), "{count} of {}: {place}", pending.len());
                    sent += usize::from(count == pending.len());
                }
            }
        }
    }
    assert!(sent > 200, "only {sent} clients have sent answers");
}

/// A step with a call of the client's and a call that asks a person.
fn mixed_log(ask: impl Fn(&mut Log)) -> Log {
    let mut log = Log::new();
    log.step().call(1, "pick", ["client", "never"], &["{}"]).call(2, "book", ["tool", "never"], &["{}"]);
    log.step_done("tool_calls").started(2, "{}");
    ask(&mut log);
    log
}

#[test]
fn an_open_question_keeps_the_outputs_of_tools_back() {
    let log = mixed_log(|log| {
        log.add(json!({
            "type": "task.approval.requested", "key": "apr_R2_1", "call_id": "call_R2", "action_requests": [],
            "review_configs": [], "timeout_seconds": 300, "expires_at": 1_710_000_300_000_u64,
            "question": {"message": "Which?"},
        }));
        let question = json!({"kind": "question", "key": "apr_R2_1", "call_id": "call_R2", "task_id": "task_R"});
        let tool = json!({"kind": "client_tool", "call_id": "call_R1", "task_id": "task_R"});
        log.add(json!({"type": "task.paused", "pending": [tool, question]}));
    });
    for version in VERSIONS {
        let mut reducer = Reducer::new(version);
        reducer.apply_all(&project(&log.records, (1, 1), version));
        let (pending, _) = pauses(&log.records).remove(0);
        let both = [("call_R1", false), ("apr_R2_1", true)];
        for (key, is_last) in both {
            answer(&mut reducer, &pending[usize::from(is_last)..][..1], &BTreeSet::from([key.to_owned()]));
            assert_eq!(sends(&reducer), is_last, "{version:?}: {:#}", reducer.message);
        }
    }
}

#[test]
fn a_rejected_tool_of_the_client_does_not_keep_the_others_back() {
    let mut log = Log::new();
    log.step().call(1, "pick", ["client", "never"], &["{}"]).call(2, "erase", ["client", "always"], &[r#"{"n":1}"#]);
    log.step_done("tool_calls").ask(2, "erase", json!({"n": 1}));
    log.pause(&[("client_tool", 1, "task_R"), ("approval", 2, "task_R")]).resume("user");
    log.decide(2, json!({"type": "reject"}), "user").no_result(2, "rejected", "rejected", "no");
    log.pause(&[("client_tool", 1, "task_R")]);
    for version in VERSIONS {
        let mut reducer = Reducer::new(version);
        reducer.apply_all(&project(&log.records, (1, 1), version));
        assert_eq!(reducer.tool_calls, ["call_R1"], "a tool must not run before it is approved");
        assert_eq!(reducer.message["parts"][2]["input"], json!({"n": 1}));
        reducer.apply_all(&project(&log.records, (2, 2), version));
        assert_eq!(reducer.message["parts"][2]["state"], "output-denied");
        assert!(!sends(&reducer));
        let (pending, _) = pauses(&log.records).remove(1);
        answer(&mut reducer, &pending, &BTreeSet::from(["call_R1".to_owned()]));
        assert!(sends(&reducer), "{version:?}: {:#}", reducer.message);
    }
}
