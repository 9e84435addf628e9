//! Frames → events, for readers of a native stream: the terminal client, a relay, the tests.

use model::{Event, Millis, Seq};
use serde::Deserialize;

use sse::{DecodeError, DecodeLimits, Decoder};

#[derive(Clone, Debug, PartialEq)]
pub struct TaskFrame {
    /// Known even if this version does not know the event.
    pub kind: String,
    pub seq: Seq,
    pub at: Millis,
    /// [`Event::Unknown`] for a type of a later version.
    pub event: Event,
}

/// The members that every event has.
#[derive(Deserialize)]
struct FrameEnvelope {
    #[serde(rename = "type")]
    kind: String,
    seq: Seq,
    at: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame's data is not an event with `type`, `seq` and `at`: {0}")]
pub struct TaskFrameError(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskReadError {
    /// It is not an event stream, or exceeds a limit.
    #[error(transparent)]
    Stream(#[from] DecodeError),
    /// It is an event stream of another protocol.
    #[error(transparent)]
    Frame(#[from] TaskFrameError),
}

/// Parses the data of one frame. Unknown members are ignored.
///
/// # Errors
/// If the data is not an event.
pub fn parse_task_frame(data: &str) -> Result<TaskFrame, TaskFrameError> {
    let FrameEnvelope { kind, seq, at } =
        serde_json::from_str(data).map_err(|error| TaskFrameError(error.to_string()))?;
    Ok(TaskFrame { kind, seq, at, event: Event::decode(data.as_bytes()) })
}

/// Reads a native stream in chunks of any size. A new connection needs a new reader.
///
/// ```
/// let mut reader = protocol::task::TaskFrameReader::new();
/// let mut chunk = &b"id: 00c0ffee-7\ndata: {\"type\":\"task.started\",\"task_id\":\"task_1\",\"seq\":7,\"at\":5}\n\n"[..];
/// let frame = reader.next_frame(&mut chunk)?.expect("a whole frame");
/// assert_eq!((frame.kind.as_str(), frame.seq.0), ("task.started", 7));
/// assert_eq!(reader.last_event_id(), Some("00c0ffee-7"));
/// # Ok::<(), protocol::task::TaskReadError>(())
/// ```
#[derive(Debug)]
pub struct TaskFrameReader {
    decoder: Decoder,
}

impl TaskFrameReader {
    #[must_use]
    pub fn new() -> Self {
        Self { decoder: Decoder::new(DecodeLimits::default()) }
    }

    /// Consumes bytes of `input` up to the end of a frame. `None` means that all of `input` was consumed and more is needed.
    ///
    /// # Errors
    /// If the stream exceeds a limit, from then on; if a frame is not an event, for that frame only.
    pub fn next_frame(&mut self, input: &mut &[u8]) -> Result<Option<TaskFrame>, TaskReadError> {
        let Some(event) = self.decoder.decode(input)? else { return Ok(None) };
        Ok(Some(parse_task_frame(&event.data)?))
    }

    /// The cursor to resume after.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.decoder.last_event_id()
    }

    /// The reconnection delay that the server asked for, in milliseconds.
    #[must_use]
    pub fn retry_ms(&self) -> Option<u64> {
        self.decoder.retry_ms()
    }
}

impl Default for TaskFrameReader {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_event_is_reported_and_the_next_one_is_parsed() {
        let stream = "data: [DONE]\n\ndata: {\"type\":\"task.x\"}\n\n: still here\n\ndata: {\"type\":\"task.x\",\"seq\":1,\"at\":2}\n\n";
        let mut rest = stream.as_bytes();
        let mut reader = TaskFrameReader::new();
        assert!(matches!(reader.next_frame(&mut rest), Err(TaskReadError::Frame(_))));
        assert!(matches!(reader.next_frame(&mut rest), Err(TaskReadError::Frame(_))));
        let frame = reader.next_frame(&mut rest).unwrap().unwrap();
        assert_eq!((frame.kind.as_str(), frame.seq, frame.at), ("task.x", Seq(1), 2));
        assert_eq!(reader.next_frame(&mut rest), Ok(None));
    }
}
