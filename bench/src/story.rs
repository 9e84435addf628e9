//! The story that every server under test tells: N deltas, each with its send time and number, then one terminal event.
//!
//! The frame has the form and about the size (180 bytes of JSON) of a `task.text.delta`, so that the yardsticks carry
//! what Headwater carries. Faults are planted here on request: a checker that was never seen to refuse anything has
//! not been tested.

use crate::clock;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Interval};

/// The words after stamp and number. `scenarios.toml` says the same ones.
pub(crate) const WORDS: &str = "once upon a time ";

/// What goes wrong, halfway through the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Planted {
    /// One delta is left out.
    Drop,
    /// One delta is sent twice.
    Repeat,
    /// Two deltas change places.
    Swap,
    /// The connection ends.
    Cut,
    /// One delta is not JSON.
    Garbage,
    /// The story ends early, with its terminal event and in good order.
    Short,
    /// The terminal event is `task.failed`.
    Fail,
    /// Something follows the terminal event.
    Epilogue,
    /// Nothing more is sent and the connection stays open.
    Hang,
}

/// How long the story is and how fast it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) deltas: u32,
    /// Time between two deltas; none is full speed.
    pub(crate) every: Option<Duration>,
    pub(crate) planted: Option<Planted>,
}

impl Story {
    /// A story without faults; `interval_ms` 0 is full speed.
    pub(crate) fn new(deltas: u32, interval_ms: u64) -> Self {
        Self { deltas, every: (interval_ms > 0).then(|| Duration::from_millis(interval_ms)), planted: None }
    }
}

/// The story as a response body: every frame is one event, written when its time has come.
pub(crate) struct StoryBody {
    story: Story,
    /// Paces all deltas but the first, which is sent at once: a timer would round it up to the next millisecond.
    /// Late ticks are made up for, as a model that was held up would do.
    ticks: Option<Interval>,
    step: u32,
    ended: bool,
}

impl StoryBody {
    pub(crate) fn new(story: Story) -> Self {
        Self { story, ticks: story.every.map(ticks), step: 0, ended: false }
    }

    /// The frames of one step: a delta as a rule, none or several where a fault is planted.
    fn next_frames(&mut self) -> Next {
        let step = self.step;
        self.step += 1;
        if step >= self.story.deltas {
            return self.ending(step);
        }
        if step != self.story.deltas / 2 {
            return Next::Frames(delta(step + 1));
        }
        match self.story.planted {
            None | Some(Planted::Fail | Planted::Epilogue) => Next::Frames(delta(step + 1)),
            Some(Planted::Drop) => Next::Frames(String::new()),
            Some(Planted::Repeat) => Next::Frames(delta(step + 1) + &delta(step + 1)),
            Some(Planted::Swap) => {
                self.step += 1;
                Next::Frames(delta(step + 2) + &delta(step + 1))
            }
            Some(Planted::Cut) => Next::End,
            Some(Planted::Garbage) => Next::Frames("data: {\"type\":\n\n".into()),
            Some(Planted::Short) => self.ending(step),
            Some(Planted::Hang) => Next::Silence,
        }
    }

    fn ending(&mut self, step: u32) -> Next {
        self.ended = true;
        let kind = if self.story.planted == Some(Planted::Fail) { "task.failed" } else { "task.completed" };
        let mut frames = terminal(step + 1, kind);
        if self.story.planted == Some(Planted::Epilogue) {
            frames += &delta(step + 2);
        }
        Next::Frames(frames)
    }
}

fn ticks(every: Duration) -> Interval {
    tokio::time::interval_at(Instant::now() + every, every)
}

enum Next {
    Frames(String),
    End,
    Silence,
}

fn delta(seq: u32) -> String {
    let now = clock::now_us();
    let mut frame = String::with_capacity(256);
    let at = now / 1000;
    // Writing to a String cannot fail.
    let _ = write!(
        frame,
        "id: {seq}\nevent: task.text.delta\ndata: {{\"type\":\"task.text.delta\",\"task_id\":\"task_0199f3a2\",\
         \"item_id\":\"msg_0199f3a21\",\"output_index\":0,\"block_index\":0,\"delta\":\"{now} {seq} {WORDS}\",\
         \"seq\":{seq},\"at\":{at}}}\n\n"
    );
    frame
}

fn terminal(seq: u32, kind: &str) -> String {
    let at = clock::now_us() / 1000;
    format!(
        "id: {seq}\nevent: {kind}\ndata: {{\"type\":\"{kind}\",\"task_id\":\"task_0199f3a2\",\"usage\":{{}},\
         \"seq\":{seq},\"at\":{at}}}\n\n"
    )
}

impl Body for StoryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            // The terminal event follows the last delta at once.
            let waits = self.step > 0 && self.step < self.story.deltas;
            if let Some(ticks) = self.ticks.as_mut().filter(|_| waits) {
                ready!(ticks.poll_tick(cx));
            }
            match self.next_frames() {
                Next::Frames(frames) if frames.is_empty() => {}
                Next::Frames(frames) => return Poll::Ready(Some(Ok(Frame::data(frames.into())))),
                Next::End => self.ended = true,
                Next::Silence => {
                    self.step -= 1;
                    return Poll::Pending; // for good: the reader's deadline ends it
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_about_as_large_as_a_providers() {
        let frame = delta(100);
        let (_, data) = frame.split_once("data: ").unwrap();
        assert!((150..=200).contains(&data.trim_end().len()), "{}", data.len());
    }
}
