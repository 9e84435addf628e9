use bytes::Bytes;
use model::cursor::{Cursor, CursorError, FramePosition};
use model::event::{Event, TaskStarted, TextDelta};
use model::ports::{Frames, Projection};
use model::record::{RecordDraft, RecordHeader};
use model::{Epoch, Record, Seq, TaskId, ThreadId};

use super::{RecordScope, TaskProjection, resume_seq};
use crate::task::parse_task_frame;
use sse::{DecodeLimits, Decoder};

fn sealed(event: Event) -> Record {
    let draft = RecordDraft { seq: Seq(7), at: 1_710_000_000_000, event, private: None };
    Record::seal(&ThreadId::from("thr_1"), &TaskId::from("task_1"), Epoch(1), draft)
}

fn started() -> Record {
    sealed(Event::Started(TaskStarted { task_id: TaskId::from("task_1") }))
}

fn stored(public: &'static str) -> Record {
    let place =
        RecordHeader { seq: Seq(7), at: 5, run: TaskId::from("task_1"), epoch: Epoch(1), format: 1, checksum: 0xab };
    Record::from_stored(place, Bytes::from_static(public.as_bytes()), Bytes::new())
}

fn frames(record: &Record) -> String {
    let mut out = Frames::default();
    TaskProjection::new(RecordScope::Thread).project(record, &mut out);
    String::from_utf8(out.into_parts().0.to_vec()).unwrap()
}

fn decoded(bytes: &str) -> Vec<sse::SseEvent> {
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut rest = bytes.as_bytes();
    std::iter::from_fn(|| decoder.decode(&mut rest).unwrap()).collect()
}

#[test]
fn a_frame_is_the_logged_bytes_with_a_cursor() {
    let record = started();
    let want = format!(
        "id: {:08x}-7\nevent: task.started\ndata: {{\"type\":\"task.started\",\"task_id\":\"task_1\",\"seq\":7,\"at\":1710000000000}}\n\n",
        record.checksum
    );
    assert_eq!(frames(&record), want);
}

#[test]
fn text_cannot_forge_a_frame() {
    for text in ["\n\nevent: task.completed\ndata: {}\n\n", "\r\rid: x\r\r", "\r\n\r\n", "\u{2028}\u{2029}\u{85}\0"] {
        let event = Event::TextDelta(TextDelta {
            task_id: TaskId::from("task_1"),
            item_id: "msg_1".into(),
            output_index: 0,
            block_index: 0,
            delta: text.to_owned(),
            logprobs: None,
        });
        let bytes = frames(&sealed(event.clone()));
        assert_eq!(bytes.lines().filter(|line| line.starts_with("event:")).count(), 1, "{text:?}");
        let [only] = &decoded(&bytes)[..] else { panic!("{text:?} makes more than one event") };
        assert_eq!(parse_task_frame(&only.data).unwrap().event, event, "{text:?}");
    }
}

/// Bytes that another writer produced: line breaks between the tokens, another key order, an unknown type.
#[test]
fn foreign_bytes_stay_one_frame() {
    let pretty = stored("{\n  \"type\": \"task.started\",\r\n  \"task_id\": \"task_1\"\n}\n");
    let [only] = &decoded(&frames(&pretty))[..] else { panic!("one record, one event") };
    let frame = parse_task_frame(&only.data).unwrap();
    assert_eq!((frame.kind.as_str(), frame.seq, frame.at), ("task.started", Seq(7), 5));
    assert_eq!(frame.event, *started().event());

    let later = stored(r#"{"type":"task.telepathy","task_id":"task_1"}"#);
    let [only] = &decoded(&frames(&later))[..] else { panic!("one record, one event") };
    assert_eq!(only.event.as_deref(), Some("task.telepathy"));
    assert!(matches!(parse_task_frame(&only.data).unwrap().event, Event::Unknown(_)));

    for (nothing, want) in
        [("{}", "{\"seq\":7,\"at\":5}"), ("", "{\"seq\":7,\"at\":5}"), ("[1]", "{\"seq\":7,\"at\":5}")]
    {
        let [only] = &decoded(&frames(&stored(nothing)))[..] else { panic!("one record, one event") };
        assert_eq!(only.data, want, "{nothing:?}");
    }
}

#[test]
fn a_cursor_inside_a_record_belongs_to_another_protocol() {
    let record = started();
    let cursor = Cursor::from(&record);
    assert_eq!(resume_seq(&cursor, Seq(9), Some(&record)), Ok(Seq(7)));
    assert_eq!(resume_seq(&cursor, Seq(9), Some(&stored("{}"))), Err(CursorError::Mismatch));
    assert_eq!(resume_seq(&cursor, Seq(6), None), Err(CursorError::Ahead { asked: Seq(7), head: Seq(6) }));
    let inner = Some(FramePosition { projection: "blocks".to_owned(), frames: 1 });
    assert_eq!(resume_seq(&Cursor { frame: inner, ..cursor }, Seq(9), Some(&record)), Err(CursorError::Mismatch));
}
