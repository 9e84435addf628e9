//! Law 6: a client that joins anywhere has what a client has that saw everything.

use super::reducer::{Client, reduce};
use super::verifier::{Verifier, verify};
use super::{
    EVENT_SCHEMA, MESSAGE_SCHEMA, THREAD, VERSIONS, parse_events, random_log, thread_events, thread_projection,
    validator,
};
use crate::responses::log::{Log, thread};
use crate::responses::scenario_logs;
use crate::resumes;
use model::condense::condense_records;
use model::json::parse_exact_object;
use model::ports::{Frames, Projection};
use model::record::RecordDraft;
use model::{Epoch, Event, Record, Seq, TaskId};
use model_testing::{LogOptions, test_seeds};
use protocol::agui::{
    AgUiHistory, AgUiRunSnapshot, AgUiVersion, SNAPSHOT_BYTES_MAX, agui_cancelled_frames, agui_messages_frame,
    agui_prelude, parse_agui_request,
};
use serde_json::{Value, json};

/// The runs of a log, read from condensed records as the store has them.
pub(super) fn snapshots(version: AgUiVersion, records: &[Record]) -> Vec<AgUiRunSnapshot> {
    let mut runs: Vec<(TaskId, AgUiRunSnapshot)> = Vec::new();
    for record in condense_records(records.to_vec()) {
        if runs.last().is_none_or(|(run, _)| *run != record.run) {
            runs.push((record.run.clone(), AgUiRunSnapshot::new(version, THREAD)));
        }
        runs.last_mut().unwrap().1.read_record(&record);
    }
    runs.into_iter().map(|(_, run)| run).collect()
}

/// The events of a client that joins after these records.
fn joined_events(version: AgUiVersion, known: &[Record], new: &[Record]) -> Vec<Value> {
    let prelude = agui_prelude(&snapshots(version, known), AgUiHistory::Complete);
    assert!(!prelude.starts_with(b"id:"), "a prelude has no position");
    let mut projection = thread_projection(version);
    known.iter().for_each(|record| projection.project(record, &mut Frames::discarded()));
    let tail = resumes::frames(Box::new(projection), new);
    let mut events = parse_events(&prelude);
    events.extend(parse_events(&tail));
    events
}

/// Every position of a long log would take quadratic time.
fn positions(records: &[Record], count: usize) -> impl Iterator<Item = usize> {
    let (step, end) = ((records.len() / count).max(1), records.len());
    (1..=end).filter(move |cut| cut % step == 0 || *cut < 8 || end - cut < 8)
}

fn check_join(name: &str, version: AgUiVersion, records: &[Record], cut: usize, whole: &Client) {
    let (known, new) = records.split_at(cut);
    let events = joined_events(version, known, new);
    let mut verifier = Verifier::default();
    events.iter().for_each(|event| verifier.check(event));
    assert_eq!(reduce(&events), *whole, "{name}, joined after {cut} of {} records", records.len());
}

#[test]
fn law_6_a_client_that_joins_anywhere_has_everything() {
    for seed in test_seeds() {
        let records = random_log(seed, LogOptions::small());
        let version = VERSIONS[usize::try_from(seed % 2).unwrap()];
        let whole = reduce(&thread_events(version, &records));
        for cut in positions(&records, 60) {
            check_join(&format!("SEED={seed}"), version, &records, cut, &whole);
        }
    }
}

#[test]
fn law_6_holds_after_every_record_of_the_scenarios() {
    let scenarios = [
        ("weather", scenario_logs::weather()),
        ("help", scenario_logs::help()),
        ("trade", scenario_logs::trade_approved()),
        ("nested", scenario_logs::nested()),
        ("client", scenario_logs::client()),
        ("image", scenario_logs::image()),
        ("failed", scenario_logs::fail("overloaded")),
        ("cancelled", scenario_logs::trade_cancelled()),
        ("recovered", scenario_logs::recover()),
    ];
    for (name, log) in scenarios {
        for version in VERSIONS {
            let whole = reduce(&thread_events(version, &log.records));
            for cut in 1..=log.records.len() {
                check_join(name, version, &log.records, cut, &whole);
            }
        }
    }
}

#[test]
fn every_prelude_of_1_0_is_valid() {
    let (event_validator, message_validator) = (validator(EVENT_SCHEMA), validator(MESSAGE_SCHEMA));
    for seed in test_seeds() {
        let records = random_log(seed, LogOptions::small());
        for cut in positions(&records, 6) {
            let prelude = agui_prelude(&snapshots(AgUiVersion::V1, &records[..cut]), AgUiHistory::Truncated);
            for event in parse_events(&prelude) {
                // The schema of events has no schema of messages.
                for message in event["messages"].as_array().into_iter().flatten() {
                    assert!(message_validator.is_valid(message), "SEED={seed}: {message}");
                }
                assert!(event_validator.is_valid(&event), "SEED={seed}: {event}");
            }
        }
    }
}

#[test]
fn a_reload_shows_no_new_error() {
    let ended = |version: AgUiVersion, log: &Log| {
        let events = parse_events(&agui_prelude(&snapshots(version, &log.records), AgUiHistory::Complete));
        let mut end = events.last().unwrap().clone();
        end.as_object_mut().unwrap().retain(|name, _| ["type", "result", "outcome"].contains(&name.as_str()));
        end
    };
    let [new, old] = VERSIONS;
    let failed = json!({"code": "overloaded", "message": "The provider failed.", "retryable": true});
    let failed = json!({"type": "RUN_FINISHED", "result": {"status": "failed", "error": failed}});
    assert_eq!(ended(new, &scenario_logs::fail("overloaded")), failed);
    let cancelled = json!({"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}});
    assert_eq!(ended(new, &scenario_logs::cancel()), cancelled);
    let cancelled = json!({"type": "RUN_FINISHED", "result": {"status": "cancelled"}});
    assert_eq!(ended(old, &scenario_logs::cancel()), cancelled);
}

#[test]
fn runs_without_records_have_no_prelude() {
    assert!(agui_prelude(&[], AgUiHistory::Complete).is_empty());
    let queued = AgUiRunSnapshot::new(AgUiVersion::V1, THREAD);
    assert!(agui_prelude(std::slice::from_ref(&queued), AgUiHistory::Complete).is_empty());
    let mut runs = snapshots(AgUiVersion::V1, &scenario_logs::weather().records);
    let prelude = agui_prelude(&runs, AgUiHistory::Complete);
    runs.push(queued);
    assert_eq!(agui_prelude(&runs, AgUiHistory::Complete), prelude);
}

#[test]
fn a_run_that_never_started_is_cancelled_in_frames_without_ids() {
    for version in VERSIONS {
        let frames = agui_cancelled_frames(version, THREAD, "run-1", 7);
        assert!(!frames.starts_with(b"id:"));
        verify(&parse_events(&frames));
    }
}

#[test]
fn snapshots_know_their_size_and_where_the_run_is() {
    let log = scenario_logs::trade_approved();
    let resumed = log.records.iter().position(|record| record.event_type() == "task.resumed").unwrap();
    let at = |count: usize| snapshots(AgUiVersion::V1, &log.records[..count]).remove(0);
    assert_eq!((at(3).segment(), at(3).is_active()), (1, true));
    assert_eq!((at(resumed).segment(), at(resumed).is_active()), (1, false));
    assert_eq!((at(resumed + 1).segment(), at(resumed + 1).is_active()), (2, true));
    let whole = at(log.records.len());
    assert!(!whole.is_active());
    assert_eq!(whole.message_bytes(), serde_json::to_vec(whole.messages()).unwrap().len());
    let frame = parse_events(&agui_messages_frame(std::slice::from_ref(&whole))).remove(0);
    assert_eq!(frame["messages"], serde_json::to_value(whole.messages()).unwrap());
}

/// The records of a log as those of the run after it.
fn next_run(log: &Log) -> Vec<Record> {
    let run = TaskId::from("task_S");
    let as_next = |record: &Record| {
        let text = std::str::from_utf8(&record.public).unwrap().replace("_R", "_S");
        let seq = Seq(record.seq.0 + log.records.len() as u64);
        let draft = RecordDraft { seq, at: record.at, event: Event::decode(text.as_bytes()), private: None };
        Record::seal(&thread(), &run, Epoch(1), draft)
    };
    log.records.iter().map(as_next).collect()
}

#[test]
fn runs_may_share_an_activity_and_a_message_of_the_user() {
    let mut log = Log::new();
    let client = json!({"protocol": "ag-ui", "run_id": "run-1", "message_ids": ["u-1"]});
    let input = json!([{"id": "msg_R0", "role": "user", "content": [{"type": "text", "text": "Plan it."}]}]);
    let task = json!({
        "thread_id": "thr_1", "agent": "demo", "model": "m", "input": input, "parent_task_id": null, "client": client,
    });
    log.records.clear();
    log.add(json!({"type": "task.created", "task": task})).add(json!({"type": "task.started"}));
    let custom = |value: Value| json!({"type": "task.custom", "name": "ag-ui.activity", "value": value});
    let plan = |content: Value, replace: bool| json!({"messageId": "plan", "activityType": "PLAN", "content": content, "replace": replace});
    let patch = json!([{"op": "add", "path": "/steps/-", "value": "b"}]);
    let patch = custom(json!({"messageId": "plan", "activityType": "PLAN", "patch": patch}));
    log.add(patch.clone()).add(custom(plan(json!({"steps": ["a"]}), false))).add(patch);
    log.step().message("msg_R1", &["Done."], None).step_done("stop").completed();
    let records = [log.records.clone(), next_run(&log)].concat();
    for version in VERSIONS {
        let whole = reduce(&thread_events(version, &records));
        let ids: Vec<&str> = whole.messages.iter().map(|message| message["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["u-1", "plan", "msg_R1", "msg_S1"]);
        for cut in 1..=records.len() {
            check_join("shared", version, &records, cut, &whole);
        }
    }
}

/// Clients send back what they were sent.
#[test]
fn every_snapshot_can_be_sent_back() {
    let mut count = 0;
    for seed in test_seeds() {
        let records = random_log(seed, LogOptions::default());
        for version in VERSIONS {
            let client = reduce(&thread_events(version, &records));
            // Activities stay with the client.
            let messages: Vec<Value> =
                client.messages.into_iter().filter(|message| message["role"] != "activity").collect();
            count += messages.len();
            let mut body =
                json!({"threadId": THREAD, "runId": "run-1", "messages": messages, "tools": [], "context": []});
            if version == AgUiVersion::V1 {
                body["protocolVersion"] = "1.0".into();
            }
            let body = parse_exact_object(&body.to_string()).unwrap();
            let request = parse_agui_request(&body);
            assert!(request.is_ok(), "SEED={seed}: {:?}", request.err());
        }
    }
    assert!(count > 100, "{count} messages");
}

#[test]
fn a_run_that_is_too_long_for_a_snapshot_lacks_its_oldest_long_results() {
    const RESULT_BYTES: usize = 1024 * 1024;
    let mut log = Log::new();
    log.step();
    for number in 1..=6 {
        log.call(number, "read", ["tool", "never"], &["{}"]);
    }
    log.step_done("tool_calls");
    for number in 1..=6 {
        let length = if number == 2 { 10 } else { RESULT_BYTES };
        log.result(number, json!([{"type": "text", "text": "x".repeat(length)}]));
    }
    log.completed();
    let runs = snapshots(AgUiVersion::V1, &log.records);
    assert!(runs[0].message_bytes() > SNAPSHOT_BYTES_MAX);
    let events = parse_events(&agui_prelude(&runs, AgUiHistory::Complete));
    assert!(events.iter().any(|event| event["name"] == "headwater.history_truncated"));
    let messages = reduce(&events).messages;
    let lengths: Vec<usize> = messages[1..].iter().map(|message| message["content"].as_str().unwrap().len()).collect();
    assert!(lengths[0] < 100 && lengths[2] < 100, "{lengths:?}");
    assert_eq!((lengths[1], &lengths[3..]), (10, [RESULT_BYTES; 3].as_slice()), "short and later ones stay");
    let messages: Vec<Value> =
        parse_events(&agui_messages_frame(&runs)).remove(0)["messages"].as_array().unwrap().clone();
    assert!(serde_json::to_vec(&messages).unwrap().len() <= SNAPSHOT_BYTES_MAX);
}

#[test]
fn a_run_that_is_too_long_for_a_snapshot_lacks_its_oldest_messages() {
    let words = "x".repeat(1024 * 1024);
    let mut log = Log::new();
    log.step().call(1, "ask_for_help", ["agent", "never"], &["{}"]).step_done("tool_calls").started(1, "{}");
    log.result_added(1);
    log.of("call_R1");
    for number in (2..14).step_by(2) {
        log.step().message(&format!("msg_R{number}"), &[&words], None);
        log.call(number + 1, "read", ["tool", "never"], &["{}"]).step_done("tool_calls");
        log.result(number + 1, json!([{"type": "text", "text": "short"}]));
    }
    for version in VERSIONS {
        let runs = snapshots(version, &log.records);
        assert!(runs[0].message_bytes() > SNAPSHOT_BYTES_MAX);
        let events = parse_events(&agui_prelude(&runs, AgUiHistory::Complete));
        assert!(events.iter().any(|event| event["name"] == "headwater.history_truncated"));
        let messages = reduce(&events).messages;
        assert!(serde_json::to_vec(&messages).unwrap().len() <= SNAPSHOT_BYTES_MAX);
        let ids: Vec<&str> = messages.iter().map(|message| message["id"].as_str().unwrap()).collect();
        // The call that is in progress stays, and no result is without its call.
        assert_eq!(ids, ["call_R1", "msg_R8", "fco_R9", "msg_R10", "fco_R11", "msg_R12", "fco_R13"]);
    }
}
