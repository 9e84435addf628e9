//! Law 6: a client that joins anywhere has what a client has that saw everything.

use super::reducer::{Client, reduce};
use super::verifier::{Verifier, verify};
use super::{
    EVENT_SCHEMA, MESSAGE_SCHEMA, THREAD, VERSIONS, parse_events, random_log, thread_events, thread_projection,
    validator,
};
use crate::responses::log::Log;
use crate::responses::scenario_logs;
use crate::resumes;
use model::condense::condense_records;
use model::ports::{Frames, Projection};
use model::{Record, TaskId};
use model_testing::{LogOptions, test_seeds};
use protocol::agui::{
    AgUiHistory, AgUiRunSnapshot, AgUiVersion, agui_cancelled_frames, agui_messages_frame, agui_prelude,
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
fn a_thread_without_runs_has_no_prelude() {
    assert!(agui_prelude(&[], AgUiHistory::Complete).is_empty());
    assert!(agui_prelude(&[AgUiRunSnapshot::new(AgUiVersion::V1, THREAD)], AgUiHistory::Complete).is_empty());
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
