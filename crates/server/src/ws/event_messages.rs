//! Event streams as messages: the data of each event, without the framing of SSE.
//!
//! The bytes are those of the event stream, so that all viewers of a response share them. A chunk may end anywhere, and an
//! event with an image has many chunks: each becomes a fragment of the message, and nothing is collected.

use bytes::Bytes;

const DATA_FIELD: &[u8] = b"data: ";
const EVENT_FIELD: &[u8] = b"event: ";
/// Longer than the name of any event.
const LINE_BYTES_MAX: usize = 256;

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageFragment {
    pub(super) bytes: Bytes,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

#[derive(Debug, Default)]
pub(super) struct EventMessages {
    /// The start of a line that is not known to be data.
    line: Vec<u8>,
    position: Position,
    /// The type of the last event.
    event_type: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Line,
    /// At the start of the data.
    DataStart,
    /// Inside it, with fragments before.
    Data,
}

impl EventMessages {
    pub(super) fn event_type(&self) -> &str {
        &self.event_type
    }

    /// The fragments of the next chunk.
    pub(super) fn split_chunk(&mut self, mut chunk: Bytes) -> Vec<MessageFragment> {
        let mut fragments = Vec::new();
        while !chunk.is_empty() {
            match self.position {
                Position::Line => self.read_line(&mut chunk),
                Position::DataStart | Position::Data => {
                    let is_first = self.position == Position::DataStart;
                    let end = memchr::memchr(b'\n', &chunk);
                    let bytes = chunk.split_to(end.unwrap_or(chunk.len()));
                    let is_last = end.is_some();
                    self.position = if is_last { Position::Line } else { Position::Data };
                    fragments.push(MessageFragment { bytes, is_first, is_last });
                }
            }
        }
        fragments
    }

    /// Reads a line up to its end, or to where its data starts.
    fn read_line(&mut self, chunk: &mut Bytes) {
        let missing = DATA_FIELD.len().saturating_sub(self.line.len());
        let end = memchr::memchr(b'\n', chunk).unwrap_or(chunk.len());
        let read = if missing > 0 { end.min(missing) } else { end };
        let part = chunk.split_to(read);
        self.line.extend_from_slice(part.get(..part.len().min(LINE_BYTES_MAX)).unwrap_or_default());
        if self.line == DATA_FIELD {
            self.line.clear();
            self.position = Position::DataStart;
        } else if chunk.first() == Some(&b'\n') {
            let _line_end = chunk.split_to(1);
            if let Some(event_type) = self.line.strip_prefix(EVENT_FIELD) {
                self.event_type = String::from_utf8_lossy(event_type).into_owned();
            }
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "event: response.created\ndata: {\"a\":\"data: é\"}\n\nevent: b\ndata: {}\n\n";

    #[test]
    fn messages_do_not_depend_on_how_the_stream_is_cut() {
        for first in 0..STREAM.len() {
            for second in first..STREAM.len() {
                let mut messages = EventMessages::default();
                let mut texts: Vec<Vec<u8>> = Vec::new();
                let pieces =
                    [&STREAM.as_bytes()[..first], &STREAM.as_bytes()[first..second], &STREAM.as_bytes()[second..]];
                for piece in pieces {
                    for fragment in messages.split_chunk(Bytes::copy_from_slice(piece)) {
                        if fragment.is_first {
                            texts.push(Vec::new());
                        }
                        texts.last_mut().unwrap().extend_from_slice(&fragment.bytes);
                        assert!(!fragment.is_last || texts.last().unwrap().ends_with(b"}"));
                    }
                }
                let texts: Vec<_> = texts.iter().map(|text| std::str::from_utf8(text).unwrap()).collect();
                assert_eq!(texts, ["{\"a\":\"data: é\"}", "{}"], "cut at {first} and {second}");
                assert_eq!(messages.event_type(), "b");
            }
        }
    }
}
