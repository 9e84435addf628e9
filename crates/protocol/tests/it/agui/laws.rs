//! Over random logs: every stream keeps the rules of its clients, and a resumed stream misses nothing.

use super::verifier::verify;
use super::{EVENT_SCHEMA, VERSIONS, parse_events, random_log, segments, thread_events, thread_projection, validator};
use crate::resumes::{self, Place};
use model::Event;
use model_testing::{LogOptions, test_seeds};
use protocol::agui::AgUiVersion;
use serde_json::Value;
use std::collections::BTreeSet;

/// No random run has more segments.
const SEGMENTS_MAX: u32 = 4;

#[test]
fn laws_4_and_5_hold_for_threads() {
    for version in VERSIONS {
        resumes::hold(Place::Id(version.projection_name()), |_, _| Box::new(thread_projection(version)));
    }
}

#[test]
fn laws_4_and_5_hold_for_segments() {
    for (version, first, last) in [(AgUiVersion::V1, 2, 2), (AgUiVersion::V0_0_59, 1, 2)] {
        resumes::hold(Place::Id(version.projection_name()), |_, records| {
            Box::new(segments(version, &records[0].run, first, last))
        });
    }
}

/// The events that the projection sends; preludes also send `MESSAGES_SNAPSHOT`.
const EVENT_TYPES: [&str; 26] = [
    "ACTIVITY_DELTA",
    "ACTIVITY_SNAPSHOT",
    "CUSTOM",
    "RAW",
    "REASONING_END",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "REASONING_MESSAGE_START",
    "REASONING_START",
    "RUN_ERROR",
    "RUN_FINISHED",
    "RUN_STARTED",
    "STATE_DELTA",
    "STATE_SNAPSHOT",
    "STEP_FINISHED",
    "STEP_STARTED",
    "SUBAGENT_ERROR",
    "SUBAGENT_FINISHED",
    "SUBAGENT_STARTED",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "TEXT_MESSAGE_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "TOOL_CALL_RESULT",
    "TOOL_CALL_START",
];

#[test]
fn every_stream_keeps_the_rules_of_clients() {
    let mut types = BTreeSet::new();
    for seed in test_seeds() {
        let records = random_log(seed, LogOptions::default());
        for version in VERSIONS {
            let events = thread_events(version, &records);
            verify(&events);
            types.extend(events.iter().map(|event| event["type"].as_str().unwrap().to_owned()));
        }
    }
    assert!(types.iter().eq(EVENT_TYPES), "random logs have events of every type: {types:?}");
}

#[test]
fn the_segments_of_a_run_are_its_events() {
    let mut count = 0;
    for seed in test_seeds() {
        for (_, records) in resumes::runs(seed) {
            let whole = thread_events(AgUiVersion::V1, &records);
            let of = |first: u32, last: u32| {
                let projection = Box::new(segments(AgUiVersion::V1, &records[0].run, first, last));
                parse_events(&resumes::frames(projection, &records))
            };
            let single: Vec<Vec<Value>> = (1..=SEGMENTS_MAX).map(|segment| of(segment, segment)).collect();
            assert_eq!(single.concat(), whole, "SEED={seed}");
            assert_eq!(of(1, SEGMENTS_MAX), whole, "SEED={seed}");
            let pauses = records.iter().filter(|record| matches!(record.event(), Event::Paused(_))).count();
            for segment in single.iter().take(pauses + 1) {
                verify(segment);
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count} segments");
}

#[test]
fn every_event_of_1_0_is_valid() {
    let validator = validator(EVENT_SCHEMA);
    for seed in test_seeds() {
        let records = random_log(seed, LogOptions::default());
        for event in thread_events(AgUiVersion::V1, &records) {
            assert!(validator.is_valid(&event), "SEED={seed}: {event}");
        }
    }
}
