//! Splits a byte stream into server-sent events, in any chunking.
//!
//! The benchmark does not use the crate `sse` on purpose: what checks the server's streams must not share a bug with
//! the code that writes them. It knows what the servers under test send (LF or CRLF lines, `id`, `event`, `data`,
//! comments) and no more.

/// A longer event is taken for a stream that has lost its line ends.
pub(crate) const EVENT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// One event, its fields as bytes without the line ends.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SplitEvent {
    pub(crate) id: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl SplitEvent {
    fn clear(&mut self) {
        self.id.clear();
        self.name.clear();
        self.data.clear();
    }

    fn push_line(&mut self, line: &[u8]) {
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default()),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => replace_bytes(&mut self.name, value),
            b"id" => replace_bytes(&mut self.id, value),
            _ => {} // comments (no field name) and fields without a meaning here, such as `retry`
        }
    }
}

fn replace_bytes(field: &mut Vec<u8>, value: &[u8]) {
    field.clear();
    field.extend_from_slice(value);
}

/// The stream holds no event within [`EVENT_BYTES_MAX`].
#[derive(Debug)]
pub(crate) struct EventTooLong;

/// Splits a stream into events. Push what arrived, then take events until there is none.
#[derive(Debug, Default)]
pub(crate) struct SseSplitter {
    buffer: Vec<u8>,
    consumed: usize,
    /// How much of the line that follows was searched for its end: one of 40 MB arrives in hundreds of pieces.
    searched: usize,
    event: SplitEvent,
    /// `event` was handed out: the next call begins a new one.
    returned: bool,
}

impl SseSplitter {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event, borrowed from the splitter's buffers, so that reading does not allocate per event.
    pub(crate) fn next(&mut self) -> Result<Option<&SplitEvent>, EventTooLong> {
        if std::mem::take(&mut self.returned) {
            self.event.clear();
        }
        while let Some(rest) = self.buffer.get(self.consumed..)
            && let Some(end) = memchr::memchr(b'\n', rest.get(self.searched..).unwrap_or_default())
        {
            let end = std::mem::take(&mut self.searched) + end;
            let line = rest.get(..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.consumed += end + 1;
            if !line.is_empty() {
                self.event.push_line(line);
            } else if self.event.data.is_empty() {
                self.event.clear();
            } else {
                self.returned = true;
                return Ok(Some(&self.event));
            }
        }
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.searched = self.buffer.len();
        if self.buffer.len() + self.event.data.len() > EVENT_BYTES_MAX { Err(EventTooLong) } else { Ok(None) }
    }

    /// Whether the stream is between two events.
    pub(crate) fn is_between_events(&self) -> bool {
        self.consumed == self.buffer.len() && (self.returned || self.event == SplitEvent::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        "\u{3a} hello\n\nretry: 5\n\nid: 1\nevent: a\ndata: {\"x\":1}\n\ndata:two\r\ndata: lines\r\n\r\n";

    fn split(chunks: &[&[u8]]) -> Vec<(String, String, String)> {
        let mut splitter = SseSplitter::default();
        let mut events = Vec::new();
        for chunk in chunks {
            splitter.push(chunk);
            while let Some(event) = splitter.next().unwrap() {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                events.push((text(&event.id), text(&event.name), text(&event.data)));
            }
        }
        assert!(splitter.is_between_events());
        events
    }

    #[test]
    fn any_cut_gives_the_same_events() {
        let whole = split(&[STREAM.as_bytes()]);
        assert_eq!(
            whole,
            [("1".into(), "a".into(), "{\"x\":1}".into()), (String::new(), String::new(), "two\nlines".into())]
        );
        for cut in 0..STREAM.len() {
            let (head, tail) = STREAM.as_bytes().split_at(cut);
            assert_eq!(split(&[head, tail]), whole, "cut at {cut}");
        }
        assert_eq!(split(&STREAM.as_bytes().chunks(1).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn a_partial_event_is_not_at_rest() {
        let mut splitter = SseSplitter::default();
        splitter.push(b"data: 1\n");
        assert!(splitter.next().unwrap().is_none());
        assert!(!splitter.is_between_events());
    }

    #[test]
    fn a_stream_without_line_ends_is_refused() {
        let mut splitter = SseSplitter::default();
        splitter.push(&vec![b'x'; EVENT_BYTES_MAX + 1]);
        assert!(splitter.next().is_err());
    }
}
