//! What the ports bring along beside their traits.

use model::ports::{AppendOutcome, Day, FrameEnd, Frames, OnCommit, PageLimit, Projection};
use model::{Epoch, Event, Record, RecordDraft, Seq, TaskId, ThreadId};
use std::sync::mpsc::{Receiver, channel};

fn record() -> Record {
    let event = Event::Started(model::event::TaskStarted { task_id: TaskId::from("task_1") });
    let draft = RecordDraft { seq: Seq(1), at: 5, event, private: None };
    Record::seal(&ThreadId::from("thr_1"), &TaskId::from("task_1"), Epoch(1), draft)
}

#[test]
fn a_day_ends_at_midnight() {
    let day = 86_400_000;
    assert_eq!(
        [Day::from_millis(0), Day::from_millis(day - 1), Day::from_millis(day), Day::from_millis(20_000 * day)],
        [0, 0, 1, 20_000].map(Day)
    );
    assert_eq!(Day::from_millis(u64::MAX), Day(u32::MAX));
}

fn listening() -> (OnCommit, Receiver<AppendOutcome>) {
    let (sender, heard) = channel();
    (OnCommit::new(move |verdict| sender.send(verdict.clone()).unwrap()), heard)
}

#[test]
fn a_verdict_is_heard_once() {
    let (landed, heard) = listening();
    landed.call(&AppendOutcome::Fenced);
    assert_eq!(heard.iter().collect::<Vec<_>>(), [AppendOutcome::Fenced]);
}

#[test]
fn an_append_that_the_store_lost_is_heard_of_as_unknown() {
    let (landed, heard) = listening();
    drop(landed);
    assert!(matches!(heard.iter().collect::<Vec<_>>()[..], [AppendOutcome::Unknown(_)]));
}

#[test]
fn frames_end_where_their_records_do() {
    let mut frames = Frames::default();
    assert!(frames.is_empty() && !frames.is_finished());
    for (seq, bytes) in [(1, "ab"), (1, "c"), (3, "defg")] {
        frames.write(Seq(seq), |out| out.extend_from_slice(bytes.as_bytes()));
    }
    assert_eq!((frames.len(), frames.is_empty(), frames.is_finished()), (7, false, false));
    frames.finish();
    assert!(frames.is_finished());
    let (bytes, ends, over) = frames.into_parts();
    assert_eq!((&bytes[..], over), (&b"abcdefg"[..], true));
    assert_eq!(ends, [FrameEnd { seq: Seq(1), end: 3 }, FrameEnd { seq: Seq(3), end: 7 }]);
}

#[test]
fn frames_for_some_records_begin_empty() {
    let frames = Frames::for_records(&[record(), record()]);
    assert_eq!((frames.len(), frames.is_finished()), (0, false));
}

/// A projection that says nothing of itself.
struct Silent;

impl Projection for Silent {
    fn project(&mut self, _record: &Record, _out: &mut Frames) {}

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(Self)
    }
}

#[test]
fn a_projection_needs_its_runs_history_unless_it_says_otherwise() {
    assert!(Silent.needs_history());
}

#[test]
fn a_wide_page_is_a_megabyte_at_most() {
    assert_eq!(PageLimit::WIDE, PageLimit { records_max: 4096, bytes_max: 1 << 20 });
}
