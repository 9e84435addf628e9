//! Laws 4, 5 and 6, for one segment and for all of them.

use super::reducer::Reducer;
use super::{VERSIONS, count_segments, parse_frames, project, projection};
use crate::responses::scenario_logs;
use crate::resumes::{Place, frames, hold, runs};
use model::Record;
use model::condense::condense_records;
use model_testing::test_seeds;
use protocol::ui_stream::{UiReplay, UiRunMessages, UiVersion};
use serde_json::Value;
use std::collections::HashSet;

fn hold_for(version: UiVersion, segments: impl Fn(&[Record]) -> (u32, u32)) {
    hold(Place::Id(version.projection_name()), |_, records| Box::new(projection(records, segments(records), version)));
}

#[test]
fn every_segment_of_version_6_obeys_the_laws() {
    hold_for(UiVersion::Six, |_| (1, 1));
    hold_for(UiVersion::Six, |_| (2, 2));
}

#[test]
fn every_segment_of_version_7_obeys_the_laws() {
    hold_for(UiVersion::Seven, |_| (1, 1));
    hold_for(UiVersion::Seven, |_| (2, 2));
}

#[test]
fn whole_runs_obey_the_laws() {
    VERSIONS.iter().for_each(|version| hold_for(*version, |records| (1, count_segments(records))));
}

/// The replay of the first records, and the frames of the rest.
fn replay_and_tail(
    records: &[Record],
    head: usize,
    segments: (u32, u32),
    version: UiVersion,
) -> (Vec<Value>, Vec<Value>) {
    let (known, new) = records.split_at(head);
    let (mut projection, mut replay) = (projection(records, segments, version), UiReplay::default());
    let condensed = known.chunks(97).flat_map(|block| condense_records(block.to_vec()));
    condensed.for_each(|record| projection.replay_record(&record, &mut replay));
    (parse_frames(&replay.into_frames()), parse_frames(&frames(Box::new(projection), new)))
}

/// Without the text that a client got in place of an input: a replay may leave that input out.
fn normalized(reducer: Reducer) -> Value {
    let mut message = reducer.message;
    for part in message["parts"].as_array_mut().unwrap() {
        let is_streaming = part["state"] == "input-streaming";
        let part = part.as_object_mut().unwrap();
        if !is_streaming {
            part.remove("rawInput");
        }
    }
    message
}

#[test]
fn a_replay_at_any_position_and_the_rest_make_the_same_message() {
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            let segments = (1, count_segments(&records));
            for version in VERSIONS {
                let mut whole = Reducer::new(version);
                whole.apply_all(&project(&records, segments, version));
                let expected = normalized(whole);
                let step = (records.len() / 24).max(1);
                for head in (0..=records.len()).filter(|head| head % step == 0 || records.len() - head < 3) {
                    let (replay, tail) = replay_and_tail(&records, head, segments, version);
                    let mut reducer = Reducer::new(version);
                    reducer.apply_all(&replay);
                    reducer.apply_all(&tail);
                    assert_eq!(normalized(reducer), expected, "seed {seed}, {version:?}, from record {head}");
                }
            }
        }
    }
}

#[test]
fn a_replay_shows_each_sub_agent_once_where_it_began() {
    let records = scenario_logs::nested().records;
    let segments = (1, count_segments(&records));
    for version in VERSIONS {
        let is_subagent = |chunk: &&Value| chunk["type"] == "data-subagent";
        let live = project(&records, segments, version);
        let shown = live.iter().filter(is_subagent).count();
        let (replay, _) = replay_and_tail(&records, records.len(), segments, version);
        let ids: Vec<&Value> = replay.iter().filter(is_subagent).map(|chunk| &chunk["id"]).collect();
        let distinct: HashSet<&Value> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len(), "{version:?}: {ids:?}");
        assert!(shown > ids.len(), "{version:?}: {shown} live");
        let mut reducer = Reducer::new(version);
        reducer.apply_all(&replay);
        let mut whole = Reducer::new(version);
        whole.apply_all(&live);
        assert_eq!(normalized(reducer), normalized(whole), "{version:?}");
    }
}

#[test]
fn a_replay_asks_for_no_tool_of_the_client_that_has_its_result() {
    let mut asked = 0;
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            let segments = (1, count_segments(&records));
            let (replay, _) = replay_and_tail(&records, records.len(), segments, UiVersion::Six);
            let mut reducer = Reducer::new(UiVersion::Six);
            reducer.apply_all(&replay);
            // What is left waits for a person, not for the client's tool.
            let calls = reducer.tool_calls.clone();
            let message = reducer.message;
            let is_client = |call: &&String| {
                let part = message["parts"].as_array().unwrap().iter().find(|part| part["toolCallId"] == call.as_str());
                part.is_some_and(|part| part["type"] != "dynamic-tool")
            };
            assert_eq!(calls.iter().find(is_client), None, "seed {seed}");
            let live = project(&records, segments, UiVersion::Six);
            let is_input = |chunk: &&Value| chunk["type"] == "tool-input-available" && chunk.get("dynamic").is_none();
            asked += live.iter().filter(is_input).count();
        }
    }
    assert!(asked > 3, "only {asked} calls of clients");
}

/// The parts, without what the SDK keeps and does not accept in a message, and without decisions: version 6 streams none.
fn comparable(mut message: Value) -> Value {
    for part in message["parts"].as_array_mut().unwrap() {
        let is_error = part["state"] == "output-error";
        let part = part.as_object_mut().unwrap();
        if is_error && part["type"] != "dynamic-tool" && part.contains_key("input") {
            part.remove("rawInput");
        }
        let is_asked = part.get("state").is_some_and(|state| state == "approval-requested");
        if !is_asked {
            part.remove("approval");
        }
    }
    message
}

/// What `validateUIMessages` of the SDK wants of a call.
fn check_part(part: &Value) {
    let Some(state) = part["state"].as_str().filter(|_| part.get("toolCallId").is_some()) else { return };
    let has = |name: &str| part.get(name).is_some();
    let approved = part["approval"].get("approved").and_then(Value::as_bool);
    let is_valid = match state {
        "input-streaming" => !has("output") && !has("errorText") && !has("approval"),
        "input-available" => has("input") && !has("output") && !has("errorText") && !has("approval"),
        "approval-requested" => has("approval") && approved.is_none() && !has("output"),
        "approval-responded" => has("input") && approved.is_some() && !has("output"),
        "output-available" => has("input") && has("output") && (!has("approval") || approved == Some(true)),
        "output-error" => has("errorText") && !has("output") && (!has("approval") || approved == Some(true)),
        "output-denied" => has("input") && !has("output") && approved == Some(false),
        _ => false,
    };
    assert!(is_valid, "{part:#}");
}

#[test]
fn a_message_that_is_read_later_is_the_one_that_was_streamed() {
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            for version in VERSIONS {
                let step = (records.len() / 12).max(1);
                for head in (1..=records.len()).filter(|head| head % step == 0 || records.len() - head < 3) {
                    let mut streamed = Reducer::new(version);
                    streamed.apply_all(&project(&records[..head], (1, u32::MAX), version));
                    let mut messages = UiRunMessages::new(records[0].run.clone(), version);
                    let condensed = records[..head].chunks(97).flat_map(|block| condense_records(block.to_vec()));
                    condensed.for_each(|record| messages.read_record(&record));
                    let read = serde_json::to_value(messages.into_messages().pop()).unwrap();
                    read["parts"].as_array().unwrap().iter().for_each(check_part);
                    let expected = comparable(streamed.message);
                    assert_eq!(comparable(read), expected, "seed {seed}, {version:?}, record {head}");
                }
            }
        }
    }
}
