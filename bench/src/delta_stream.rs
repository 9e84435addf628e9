//! The stream that every server under test sends: N deltas, each with its send time and number, then a terminal event.
//!
//! The frame has the form and about the size (180 bytes of JSON) of a `task.text.delta`, so that the baselines
//! transport what Headwater transports. Faults are planted here on request, so that the checker itself can be tested.

use crate::clock;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Interval};

/// The text after timestamp and number, as in `scenarios.toml`.
pub(crate) const DELTA_TEXT: &str = "once upon a time ";

/// A fault halfway through the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PlantedFault {
    /// One delta is left out.
    Drop,
    /// One delta is sent twice.
    Repeat,
    /// Two deltas are swapped.
    Swap,
    /// The connection ends.
    Cut,
    /// One delta is not JSON.
    Garbage,
    /// The stream ends early, in order and with its terminal event.
    Short,
    /// The terminal event is `task.failed`.
    Fail,
    /// Something follows the terminal event.
    Epilogue,
    /// Nothing more is sent and the connection stays open.
    Hang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamSpec {
    pub(crate) deltas: u32,
    /// Time between two deltas; `None` is full speed.
    pub(crate) interval: Option<Duration>,
    pub(crate) fault: Option<PlantedFault>,
}

impl StreamSpec {
    /// A stream without faults; `interval_ms` 0 is full speed.
    pub(crate) fn new(deltas: u32, interval_ms: u64) -> Self {
        Self { deltas, interval: (interval_ms > 0).then(|| Duration::from_millis(interval_ms)), fault: None }
    }
}

/// A response body that sends one event per frame, at its pace.
pub(crate) struct StreamBody {
    spec: StreamSpec,
    /// Paces all deltas but the first, which a timer would delay to the next millisecond. Missed ticks are caught up, as a
    /// model that was delayed would do.
    ticks: Option<Interval>,
    step: u32,
    ended: bool,
}

impl StreamBody {
    pub(crate) fn new(spec: StreamSpec) -> Self {
        Self { spec, ticks: spec.interval.map(ticker), step: 0, ended: false }
    }

    /// The frames of one step: usually one delta, none or several where a fault is planted.
    fn next_frames(&mut self) -> NextStep {
        let step = self.step;
        self.step += 1;
        if step >= self.spec.deltas {
            return self.terminal_frames(step);
        }
        if step != self.spec.deltas / 2 {
            return NextStep::Frames(delta_frame(step + 1));
        }
        match self.spec.fault {
            None | Some(PlantedFault::Fail | PlantedFault::Epilogue) => NextStep::Frames(delta_frame(step + 1)),
            Some(PlantedFault::Drop) => NextStep::Frames(String::new()),
            Some(PlantedFault::Repeat) => NextStep::Frames(delta_frame(step + 1) + &delta_frame(step + 1)),
            Some(PlantedFault::Swap) => {
                self.step += 1;
                NextStep::Frames(delta_frame(step + 2) + &delta_frame(step + 1))
            }
            Some(PlantedFault::Cut) => NextStep::End,
            Some(PlantedFault::Garbage) => NextStep::Frames("data: {\"type\":\n\n".into()),
            Some(PlantedFault::Short) => self.terminal_frames(step),
            Some(PlantedFault::Hang) => NextStep::Silence,
        }
    }

    fn terminal_frames(&mut self, step: u32) -> NextStep {
        self.ended = true;
        let kind = if self.spec.fault == Some(PlantedFault::Fail) { "task.failed" } else { "task.completed" };
        let mut frames = terminal_frame(step + 1, kind);
        if self.spec.fault == Some(PlantedFault::Epilogue) {
            frames += &delta_frame(step + 2);
        }
        NextStep::Frames(frames)
    }
}

fn ticker(every: Duration) -> Interval {
    tokio::time::interval_at(Instant::now() + every, every)
}

enum NextStep {
    Frames(String),
    End,
    Silence,
}

fn delta_frame(seq: u32) -> String {
    let now = clock::now_us();
    let mut frame = String::with_capacity(256);
    let at = now / 1000;
    // Writing to a String cannot fail.
    let _ = write!(
        frame,
        "id: {seq}\nevent: task.text.delta\ndata: {{\"type\":\"task.text.delta\",\"task_id\":\"task_0199f3a2\",\
         \"item_id\":\"msg_0199f3a21\",\"output_index\":0,\"block_index\":0,\"delta\":\"{now} {seq} {DELTA_TEXT}\",\
         \"seq\":{seq},\"at\":{at}}}\n\n"
    );
    frame
}

fn terminal_frame(seq: u32, kind: &str) -> String {
    let at = clock::now_us() / 1000;
    format!(
        "id: {seq}\nevent: {kind}\ndata: {{\"type\":\"{kind}\",\"task_id\":\"task_0199f3a2\",\"usage\":{{}},\
         \"seq\":{seq},\"at\":{at}}}\n\n"
    )
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            // The terminal event follows the last delta at once.
            let waits = self.step > 0 && self.step < self.spec.deltas;
            if let Some(ticks) = self.ticks.as_mut().filter(|_| waits) {
                ready!(ticks.poll_tick(cx));
            }
            match self.next_frames() {
                NextStep::Frames(frames) if frames.is_empty() => {}
                NextStep::Frames(frames) => return Poll::Ready(Some(Ok(Frame::data(frames.into())))),
                NextStep::End => self.ended = true,
                NextStep::Silence => {
                    self.step -= 1;
                    return Poll::Pending; // never woken: the reader's deadline ends it
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
        let frame = delta_frame(100);
        let (_, data) = frame.split_once("data: ").unwrap();
        assert!((150..=200).contains(&data.trim_end().len()), "{}", data.len());
    }
}
