//! Bytes of an event stream in, events out.
//!
//! Lines are split as bytes and turned into text one by one: CR, LF, the colon and the byte order mark cannot be part
//! of another character in UTF-8, so this gives what decoding the whole stream first would give. An end of the stream
//! needs no call: an event without its blank line never happened.

use std::borrow::Cow;
use std::sync::Arc;

use super::find_line_end;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// How much a stream may make the decoder hold.
///
/// A decoder holds at most one line and one event, besides the last id and the one that is about to replace it (each
/// came in on one line). Bad bytes can make a line up to three times as long when it becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// The longest line, in bytes as received, without its line end. 1 MiB unless told otherwise.
    pub line_bytes_max: usize,
    /// The longest `data` of one event, in bytes, its lines joined. 4 MiB unless told otherwise.
    pub event_bytes_max: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { line_bytes_max: 1024 * 1024, event_bytes_max: 4 * 1024 * 1024 }
    }
}

/// One event, as its blank line released it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The last id that the stream has set, by this event or before it; `None` when there is none or it was reset.
    /// Shared, because a stream of tiny events may repeat one long id.
    pub id: Option<Arc<str>>,
    /// The event's name; `None` where a browser would say `message`.
    pub event: Option<String>,
    /// The `data` lines, joined by LF.
    pub data: String,
}

/// Why a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A line does not end in time.
    #[error("a line of the event stream is longer than line_bytes_max ({line_bytes_max} bytes)")]
    LineTooLong {
        /// The limit that was in force.
        line_bytes_max: usize,
    },
    /// An event has more data than allowed.
    #[error("an event of the event stream has more data than event_bytes_max ({event_bytes_max} bytes)")]
    EventTooLong {
        /// The limit that was in force.
        event_bytes_max: usize,
    },
}

/// Reads one event stream, in chunks of any size. A new connection needs a new decoder.
///
/// ```
/// use sse::{Decoder, Limits};
///
/// let mut decoder = Decoder::new(Limits::default());
/// let mut seen = Vec::new();
/// for chunk in ["id: 7\nevent: greet\nda", "ta: hello\r", "\n\r\nid: 8\n\n"] {
///     let mut rest = chunk.as_bytes();
///     while let Some(event) = decoder.decode(&mut rest)? {
///         seen.push(event.data);
///     }
/// }
/// assert_eq!(seen, ["hello"]);
/// assert_eq!(decoder.last_event_id(), Some("8"));
/// # Ok::<(), sse::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: DecodeLimits,
    failure: Option<DecodeError>,
    /// The beginning of a line whose end has not come in yet.
    partial: Vec<u8>,
    /// The last byte was a CR, which has ended its line; an LF that follows belongs to it.
    after_cr: bool,
    /// No line has ended yet, so the next one may begin with a byte order mark.
    at_start: bool,
    event: Option<String>,
    /// `None` until the event has a `data` line: only then does its blank line release it.
    data: Option<String>,
    /// What the latest `id` line said; a blank line makes it the last event id.
    pending_id: Option<Arc<str>>,
    last_event_id: Option<Arc<str>>,
    retry_ms: Option<u64>,
}

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new(limits: DecodeLimits) -> Self {
        Self {
            limits,
            failure: None,
            partial: Vec::new(),
            after_cr: false,
            at_start: true,
            event: None,
            data: None,
            pending_id: None,
            last_event_id: None,
            retry_ms: None,
        }
    }

    /// Takes bytes off `input` until an event is whole. `None` means that all of `input` was taken and more is needed.
    ///
    /// # Errors
    /// When the stream goes beyond a limit. The decoder is then finished, and gives the same error for ever.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<SseEvent>, DecodeError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.advance(input).inspect_err(|failure| {
            self.failure = Some(*failure);
            self.partial = Vec::new();
            self.data = None;
        })
    }

    /// The position in the stream: the id to resume after. An `id` counts once a blank line has followed it, also when
    /// no event came of that.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How many milliseconds the stream last asked its reader to wait before it reconnects. As sent, so possibly
    /// absurd: the caller bounds it.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    fn advance(&mut self, input: &mut &[u8]) -> Result<Option<SseEvent>, DecodeError> {
        while !input.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = input.strip_prefix(b"\n")
            {
                *input = rest;
                continue;
            }
            let end = find_line_end(input);
            let (head, tail) = input.split_at_checked(end.unwrap_or(input.len())).unwrap_or((input, &[]));
            // Before anything is kept, so that the limit also bounds what a line without an end can take.
            if self.partial.len() + head.len() > self.limits.line_bytes_max {
                return Err(DecodeError::LineTooLong { line_bytes_max: self.limits.line_bytes_max });
            }
            let Some((line_end, tail)) = tail.split_first() else {
                self.partial.extend_from_slice(head);
                *input = &[];
                break;
            };
            *input = tail;
            self.after_cr = *line_end == b'\r';
            if let Some(event) = self.end_line(head)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// `tail` ends the current line. A line that came in one piece is read where it lies.
    fn end_line(&mut self, tail: &[u8]) -> Result<Option<SseEvent>, DecodeError> {
        if self.partial.is_empty() {
            return self.parse_line(tail);
        }
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(tail);
        let event = self.parse_line(&line)?;
        line.clear();
        self.partial = line;
        Ok(event)
    }

    fn parse_line(&mut self, line: &[u8]) -> Result<Option<SseEvent>, DecodeError> {
        let mark = if std::mem::take(&mut self.at_start) { BYTE_ORDER_MARK } else { b"" };
        let line = line.strip_prefix(mark).unwrap_or(line);
        if line.is_empty() {
            return Ok(self.dispatch());
        }
        // A line without a colon is a name with an empty value. A comment is a line with an empty name.
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at_checked(colon).unwrap_or((line, &[]));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.append_data(&utf8_lossy(value))?,
            b"event" => self.event = non_empty(utf8_lossy(value)).map(Cow::into_owned),
            b"id" if !value.contains(&0) => self.pending_id = non_empty(utf8_lossy(value)).map(Arc::from),
            b"retry" => self.retry_ms = parse_digits(value).or(self.retry_ms),
            _ => {}
        }
        Ok(None)
    }

    fn append_data(&mut self, value: &str) -> Result<(), DecodeError> {
        let held = self.data.as_ref().map_or(0, |data| data.len() + 1);
        if held + value.len() > self.limits.event_bytes_max {
            return Err(DecodeError::EventTooLong { event_bytes_max: self.limits.event_bytes_max });
        }
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
        Ok(())
    }

    /// A blank line: the id counts from here on, and an event that has data is released.
    fn dispatch(&mut self) -> Option<SseEvent> {
        self.last_event_id.clone_from(&self.pending_id);
        let event = self.event.take();
        let data = self.data.take()?;
        Some(SseEvent { id: self.last_event_id.clone(), event, data })
    }
}

/// Bad bytes become U+FFFD. They are rare, and reading good ones without looking for them is several times faster.
fn utf8_lossy(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn non_empty(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (!text.is_empty()).then_some(text)
}

/// The number that `value` spells. One that is too great for the type is as good as the greatest.
fn parse_digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        byte.is_ascii_digit().then(|| number.saturating_mul(10).saturating_add(u64::from(byte - b'0')))
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
