//! A long text is written once: the frames and the objects that repeat it share it.

use crate::responses::log::{Log, run, thread};
use crate::resumes::{self, Place};
use model::Record;
use model::json::SHARED_TEXT_BYTES_MIN;
use model::ports::{FrameBytes, Frames, Projection};
use protocol::responses::ResponsesProjection;
use protocol::run_items::{RUN_ITEMS_PROJECTION, RunItemsProjection};
use serde_json::json;

/// A run whose answer has these two deltas. As in every long run, its `done` events do not repeat the text.
fn answer(deltas: [&str; 2]) -> Vec<Record> {
    let placed = |event_type: &str, member: &str, value| {
        let mut event = json!({"type": event_type, "item_id": "msg_R1", "output_index": 0, "block_index": 0});
        event[member] = value;
        event
    };
    let item = |status: &str| json!({"type": "message", "id": "msg_R1", "role": "assistant", "status": status});
    let mut log = Log::new();
    log.step().add(json!({"type": "task.output_item.added", "output_index": 0, "item": item("in_progress")}));
    log.add(placed("task.text.added", "item", json!({"type": "text", "text": ""})));
    for delta in deltas {
        log.add(placed("task.text.delta", "delta", delta.into()));
    }
    log.add(placed("task.text.done", "item", json!({"type": "text"})));
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": item("completed")}));
    log.step_done("stop").completed();
    log.records.clone()
}

fn responses() -> Box<dyn Projection> {
    Box::new(ResponsesProjection::new(run(), 1, &thread()))
}

fn run_items() -> Box<dyn Projection> {
    Box::new(RunItemsProjection::new(run(), &thread()))
}

/// A text without and one with escapes.
fn long_texts() -> [String; 2] {
    ["plain ", "a \"line\"\n"].map(|piece| piece.repeat(SHARED_TEXT_BYTES_MIN / piece.len() + 1))
}

fn pieces(mut projection: Box<dyn Projection>, records: &[Record]) -> Vec<FrameBytes> {
    let mut out = Frames::default();
    records.iter().for_each(|record| projection.project(record, &mut out));
    out.into_pieces().into()
}

#[test]
fn all_frames_share_one_text() {
    for text in long_texts() {
        let records = answer([&text, "end"]);
        for (make, frame_count) in [(responses as fn() -> _, 4), (run_items, 5)] {
            let pieces = pieces(make(), &records);
            let texts: Vec<_> = pieces.iter().filter(|piece| matches!(piece, FrameBytes::Text(_))).collect();
            assert_eq!(texts.len(), frame_count);
            assert!(texts.iter().all(|piece| piece.as_ref().as_ptr() == texts[0].as_ref().as_ptr()));
            let whole: Vec<u8> = pieces.iter().flat_map(AsRef::as_ref).copied().collect();
            assert!(whole == resumes::frames(make(), &records), "the pieces are the frames");
        }
    }
}

#[test]
fn the_frames_are_those_of_a_short_text() {
    let short = resumes::frames(responses(), &answer(["<1>", "<2>"]));
    for text in long_texts() {
        let json = serde_json::to_string(&text).unwrap();
        let expected = String::from_utf8(short.clone()).unwrap().replace("<1>", &json[1..json.len() - 1]);
        let frames = resumes::frames(responses(), &answer([&text, "<2>"]));
        assert!(frames == expected.into_bytes(), "{text:.40}");
    }
}

#[test]
fn a_stream_resumes_between_frames_with_a_long_text() {
    for text in long_texts() {
        let records = answer([&text, "end"]);
        resumes::check(0, Place::Count, &records, responses);
        resumes::check(0, Place::Id(RUN_ITEMS_PROJECTION), &records, run_items);
    }
}

#[test]
fn the_object_shares_the_text_with_the_frames() {
    for text in long_texts() {
        let mut projection = ResponsesProjection::new(run(), 1, &thread());
        let records = answer([&text, "end"]);
        let mut out = Frames::default();
        records.iter().for_each(|record| projection.project(record, &mut out));
        let object = projection.object().unwrap();
        assert!(object["output"][0]["content"][0]["text"] == format!("{text}end"));
        let pieces = projection.object_json().unwrap();
        assert!(pieces.concat() == object.to_string().into_bytes());
        let frame_text = out.into_pieces().into_iter().find(|piece| matches!(piece, FrameBytes::Text(_))).unwrap();
        assert_eq!(pieces[1].as_ptr(), frame_text.as_ref().as_ptr());
    }
}
