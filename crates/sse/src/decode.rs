//! Decodes the bytes of an event stream.
//!
//! Lines are split as bytes and converted to text one by one. In UTF-8, CR, LF, the colon and the byte order mark cannot be
//! part of another character, so the result is the same as decoding the complete stream first. The end of the stream needs
//! no call: an event without its blank line is discarded.

use std::borrow::Cow;
use std::sync::Arc;

use super::find_line_end;

/// A buffer that grew beyond this for one long event is shortened again.
const KEPT_BUFFER_BYTES: usize = 16 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Bounds on the memory of a decoder.
///
/// A decoder buffers at most one line and one event, the last id and its pending successor (each from one line). Invalid
/// bytes can make a line up to three times as long when it becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// The longest line, in bytes as received, without its line end. 1 MiB by default.
    pub line_bytes_max: usize,
    /// The longest `data` of one event, with its lines joined. 4 MiB by default.
    pub event_bytes_max: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { line_bytes_max: 1024 * 1024, event_bytes_max: 4 * 1024 * 1024 }
    }
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The last id of the stream, set by this event or before it; `None` if there is none or it was reset. Shared, because
    /// a stream of tiny events may repeat one long id.
    pub id: Option<Arc<str>>,
    /// The event's name; `None` where a browser would use `message`.
    pub event: Option<String>,
    /// The `data` lines, joined by LF.
    pub data: String,
}

/// A stream exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A line exceeds its limit.
    #[error("a line of the event stream is longer than line_bytes_max ({line_bytes_max} bytes)")]
    LineTooLong {
        /// The limit.
        line_bytes_max: usize,
    },
    /// The data of an event exceeds its limit.
    #[error("an event of the event stream has more data than event_bytes_max ({event_bytes_max} bytes)")]
    EventTooLong {
        /// The limit.
        event_bytes_max: usize,
    },
}

/// Decodes one event stream, in chunks of any size. A new connection needs a new decoder.
///
/// ```
/// use sse::{DecodeLimits, Decoder};
///
/// let mut decoder = Decoder::new(DecodeLimits::default());
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
    /// An unterminated line.
    partial: Vec<u8>,
    /// The last byte was a CR, which ended its line; a following LF belongs to it.
    after_cr: bool,
    /// No line has ended yet, so the next one may begin with a byte order mark.
    at_start: bool,
    /// Empty without an `event` line.
    event: String,
    data: String,
    /// Without a `data` line, the blank line emits nothing.
    has_data: bool,
    /// From the latest `id` line; a blank line makes it the last event id.
    pending_id: Option<Arc<str>>,
    last_event_id: Option<Arc<str>>,
    retry_ms: Option<u64>,
}

impl Decoder {
    /// Creates a decoder for the start of a stream.
    pub fn new(limits: DecodeLimits) -> Self {
        Self {
            limits,
            failure: None,
            partial: Vec::new(),
            after_cr: false,
            at_start: true,
            event: String::new(),
            data: String::new(),
            has_data: false,
            pending_id: None,
            last_event_id: None,
            retry_ms: None,
        }
    }

    /// Consumes bytes of `input` up to the end of an event. `None` means that all of `input` was consumed.
    ///
    /// # Errors
    /// When the stream exceeds a limit. Every later call returns the same error.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<SseEvent>, DecodeError> {
        let mut event = SseEvent::default();
        Ok(self.decode_into(input, &mut event)?.then_some(event))
    }

    /// As [`Decoder::decode`], into an event that exists, so that a stream of many small events needs no allocation per
    /// event. Returns `false` if all of `input` was consumed; then `event` is unchanged.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode_into(&mut self, input: &mut &[u8], event: &mut SseEvent) -> Result<bool, DecodeError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.advance(input, event).inspect_err(|failure| {
            self.failure = Some(*failure);
            self.partial = Vec::new();
            self.data = String::new();
        })
    }

    /// The id to resume after. An `id` counts once a blank line has followed it, even without an event.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// The reconnection time that the stream last set. The caller has to bound it.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    fn advance(&mut self, input: &mut &[u8], event: &mut SseEvent) -> Result<bool, DecodeError> {
        while !input.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = input.strip_prefix(b"\n")
            {
                *input = rest;
                continue;
            }
            let end = find_line_end(input);
            let (head, tail) = input.split_at_checked(end.unwrap_or(input.len())).unwrap_or((input, &[]));
            // Check before buffering, so that the limit also bounds unterminated lines.
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
            if self.end_line(head, event)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `tail` ends the current line. A line within one chunk is parsed without a copy.
    fn end_line(&mut self, tail: &[u8], event: &mut SseEvent) -> Result<bool, DecodeError> {
        if self.partial.is_empty() {
            return self.parse_line(tail, event);
        }
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(tail);
        let is_complete = self.parse_line(&line, event)?;
        line.clear();
        line.shrink_to(KEPT_BUFFER_BYTES);
        self.partial = line;
        Ok(is_complete)
    }

    fn parse_line(&mut self, line: &[u8], event: &mut SseEvent) -> Result<bool, DecodeError> {
        let mark = if std::mem::take(&mut self.at_start) { BYTE_ORDER_MARK } else { b"" };
        let line = line.strip_prefix(mark).unwrap_or(line);
        if line.is_empty() {
            return Ok(self.dispatch(event));
        }
        // A line without a colon is a name with an empty value; a comment has an empty name.
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at_checked(colon).unwrap_or((line, &[]));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.append_data(&utf8_lossy(value))?,
            b"event" => {
                self.event.clear();
                self.event.push_str(&utf8_lossy(value));
            }
            b"id" if !value.contains(&0) => self.pending_id = non_empty(utf8_lossy(value)).map(Arc::from),
            b"retry" => self.retry_ms = parse_digits(value).or(self.retry_ms),
            _ => {}
        }
        Ok(false)
    }

    fn append_data(&mut self, value: &str) -> Result<(), DecodeError> {
        let buffered_bytes = if self.has_data { self.data.len() + 1 } else { 0 };
        if buffered_bytes + value.len() > self.limits.event_bytes_max {
            return Err(DecodeError::EventTooLong { event_bytes_max: self.limits.event_bytes_max });
        }
        if self.has_data {
            self.data.push('\n');
        }
        self.has_data = true;
        self.data.push_str(value);
        Ok(())
    }

    /// A blank line commits the id, and emits the event if it has data. The buffers of the previous event are used for the
    /// next one.
    fn dispatch(&mut self, event: &mut SseEvent) -> bool {
        self.last_event_id.clone_from(&self.pending_id);
        if !std::mem::take(&mut self.has_data) {
            self.event.clear();
            return false;
        }
        event.id.clone_from(&self.last_event_id);
        std::mem::swap(&mut event.data, &mut self.data);
        match &mut event.event {
            _ if self.event.is_empty() => event.event = None,
            Some(name) => std::mem::swap(name, &mut self.event),
            None => event.event = Some(std::mem::take(&mut self.event)),
        }
        for buffer in [&mut self.data, &mut self.event] {
            buffer.clear();
            buffer.shrink_to(KEPT_BUFFER_BYTES);
        }
        true
    }
}

/// Invalid bytes become U+FFFD. They are rare, and validating first is several times faster.
fn utf8_lossy(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn non_empty(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (!text.is_empty()).then_some(text)
}

/// Numbers that do not fit saturate.
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
