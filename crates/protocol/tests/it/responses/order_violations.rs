//! Tests of the check itself: each of these errors, planted in a valid stream, is detected as what it is.

use super::log::{run, thread};
use super::order::{Frame, check};
use super::scenario_frames::read;
use super::scenario_logs;
use crate::resumes::frames;
use protocol::responses::ResponsesProjection;
use serde_json::json;
use std::collections::BTreeSet;

fn good() -> Vec<Frame> {
    read(&frames(Box::new(ResponsesProjection::new(run(), 1, &thread())), &scenario_logs::weather().records))
}

fn find(frames: &[Frame], event: &str) -> usize {
    frames.iter().position(|(name, _)| name.strip_prefix("response.") == Some(event)).unwrap()
}

/// The error message after the frames were renumbered: the check must detect the error, not the gap it left.
#[track_caller]
fn caught(name: &str, plant: impl Fn(&mut Vec<Frame>)) {
    let mut frames = good();
    plant(&mut frames);
    for (number, (_, data)) in frames.iter_mut().enumerate() {
        data["sequence_number"] = number.into();
    }
    let why = check(&frames, &BTreeSet::new()).expect_err(name);
    assert!(why.starts_with(name), "expected `{name}`, got: {why}");
}

#[test]
fn a_valid_stream_passes() {
    check(&good(), &BTreeSet::new()).unwrap();
}

#[test]
fn a_missing_sequence_number_is_detected() {
    let mut frames = good();
    frames.remove(5);
    let why = check(&frames, &BTreeSet::new()).unwrap_err();
    assert!(why.starts_with("sequence numbers"), "{why}");
}

#[test]
fn errors_inside_an_item_are_detected() {
    caught("no such part is open", |frames| {
        frames.remove(find(frames, "content_part.added"));
    });
    caught("item_id is not", |frames| {
        let at = find(frames, "output_text.delta");
        frames[at].1["item_id"] = "msg_R9".into();
    });
    caught("the text is not what its deltas were", |frames| {
        frames.remove(find(frames, "output_text.delta"));
    });
    caught("a part is done before its text", |frames| {
        frames.remove(find(frames, "output_text.done"));
    });
    caught("done with a part that is open", |frames| {
        let last = frames.iter().rposition(|(name, _)| name == "response.reasoning_summary_part.done");
        frames.remove(last.unwrap());
    });
    caught("the arguments are not what their deltas were", |frames| {
        frames.remove(find(frames, "mcp_call_arguments.delta"));
    });
    caught("annotations are not counted", |frames| {
        let at = find(frames, "output_text.annotation.added");
        frames[at].1["annotation_index"] = 1.into();
    });
}

#[test]
fn errors_between_items_are_detected() {
    caught("output_index is not the next one", |frames| {
        let at = find(frames, "output_item.added");
        frames[at].1["output_index"] = 1.into();
    });
    caught("the item's identity changed", |frames| {
        let at = find(frames, "output_item.done");
        frames[at].1["item"]["id"] = "rs_R9".into();
    });
    caught("a frame of an item that is not there", |frames| {
        frames.remove(find(frames, "output_item.added"));
    });
}

#[test]
fn errors_at_start_and_end_are_detected() {
    caught("the object lacks top_logprobs", |frames| {
        frames[0].1["response"].as_object_mut().unwrap().remove("top_logprobs");
    });
    caught("rs_R1 was never done", |frames| {
        frames.remove(find(frames, "output_item.done"));
    });
    caught("the output is not the items", |frames| {
        let last = frames.len() - 1;
        frames[last].1["response"]["output"].as_array_mut().unwrap().pop();
    });
    caught("the response's id changed", |frames| {
        let last = frames.len() - 1;
        frames[last].1["response"]["id"] = "resp_X".into();
    });
    caught("a frame after the terminal one", |frames| {
        let last = frames.last().unwrap().clone();
        frames.push(last);
    });
    caught("no terminal frame", |frames| {
        frames.pop();
    });
    caught("a top-level error", |frames| {
        let last = frames.len() - 1;
        frames[last].1["error"] = json!({"message": "no"});
    });
}
