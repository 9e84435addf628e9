//! The helpers that the ports provide besides their traits.

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

fn commit_channel() -> (OnCommit, Receiver<AppendOutcome>) {
    let (sender, outcomes) = channel();
    (OnCommit::new(move |verdict| sender.send(verdict.clone()).unwrap()), outcomes)
}

#[test]
fn an_append_outcome_is_delivered_once() {
    let (landed, outcomes) = commit_channel();
    landed.call(&AppendOutcome::Fenced);
    assert_eq!(outcomes.iter().collect::<Vec<_>>(), [AppendOutcome::Fenced]);
}

#[test]
fn an_append_lost_by_the_store_has_an_unknown_outcome() {
    let (landed, outcomes) = commit_channel();
    drop(landed);
    assert!(matches!(outcomes.iter().collect::<Vec<_>>()[..], [AppendOutcome::Unknown(_)]));
}

#[test]
fn frames_end_with_their_records() {
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
fn a_new_frame_buffer_is_empty() {
    let frames = Frames::for_records(&[record(), record()]);
    assert_eq!((frames.len(), frames.is_finished()), (0, false));
}

/// A projection with the default methods only.
struct Silent;

impl Projection for Silent {
    fn project(&mut self, _record: &Record, _out: &mut Frames) {}

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(Self)
    }
}

#[test]
fn a_projection_needs_the_history_of_its_run_by_default() {
    assert!(Silent.needs_history());
}

#[test]
fn a_wide_page_is_a_megabyte_at_most() {
    assert_eq!(PageLimit::WIDE, PageLimit { records_max: 4096, bytes_max: 1 << 20 });
}
