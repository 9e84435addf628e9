//! The stream that the mock sends: N deltas, each with its send time and number, then the end of the stream.
//!
//! Faults are planted here on request, so that the checker itself can be tested.

use crate::mock_frames::{FrameWriter, MockStreamEnd};
use crate::stream_protocol::StreamProtocol;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Interval};

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
    /// The stream ends with the protocol's event for a failure.
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
    writer: FrameWriter,
    /// Paces all deltas but the first, which a timer would delay to the next millisecond. Missed ticks are caught up, as a
    /// model that was delayed would do.
    ticks: Option<Interval>,
    step: u32,
    ended: bool,
}

impl StreamBody {
    pub(crate) fn new(protocol: StreamProtocol, spec: StreamSpec) -> Self {
        let writer = FrameWriter::new(protocol);
        Self { spec, writer, ticks: spec.interval.map(ticker), step: 0, ended: false }
    }

    /// Whether it ended with its terminal event.
    pub(crate) fn has_completed(&self) -> bool {
        self.ended && self.spec.fault != Some(PlantedFault::Cut)
    }

    /// The frames of one step: usually one delta, none or several where a fault is planted. What precedes the first delta
    /// is sent with it.
    fn next_frames(&mut self) -> NextStep {
        let step = self.step;
        self.step += 1;
        if step >= self.spec.deltas {
            return self.terminal_frames(step);
        }
        let opening = if step == 0 { self.writer.opening() } else { String::new() };
        if step != self.spec.deltas / 2 {
            return NextStep::Frames(opening + &self.writer.delta(step + 1));
        }
        match self.spec.fault {
            None | Some(PlantedFault::Fail | PlantedFault::Epilogue) => {
                NextStep::Frames(opening + &self.writer.delta(step + 1))
            }
            Some(PlantedFault::Drop) => NextStep::Frames(opening),
            Some(PlantedFault::Repeat) => {
                NextStep::Frames(opening + &self.writer.delta(step + 1) + &self.writer.delta(step + 1))
            }
            Some(PlantedFault::Swap) => {
                self.step += 1;
                NextStep::Frames(opening + &self.writer.delta(step + 2) + &self.writer.delta(step + 1))
            }
            Some(PlantedFault::Cut) => NextStep::End,
            Some(PlantedFault::Garbage) => NextStep::Frames("data: {\"type\":\n\n".into()),
            Some(PlantedFault::Short) => self.terminal_frames(step),
            Some(PlantedFault::Hang) => NextStep::Silence,
        }
    }

    fn terminal_frames(&mut self, deltas: u32) -> NextStep {
        self.ended = true;
        let end =
            if self.spec.fault == Some(PlantedFault::Fail) { MockStreamEnd::Failed } else { MockStreamEnd::Completed };
        let mut frames = self.writer.terminal(deltas, end);
        if self.spec.fault == Some(PlantedFault::Epilogue) {
            frames += &self.writer.delta(deltas + 2);
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
