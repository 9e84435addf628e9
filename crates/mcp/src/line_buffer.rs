//! Cuts bytes into lines of bounded length.

use crate::limits::LINE_BYTES_MAX;
use bytes::{Buf, Bytes, BytesMut};

/// A line is longer than [`LINE_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineTooLong;

#[derive(Default)]
pub(crate) struct LineBuffer {
    bytes: BytesMut,
    /// How much of `bytes` is known to have no line end.
    searched: usize,
}

impl LineBuffer {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// The next complete line, without its end.
    pub(crate) fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let rest = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(at) = rest.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at) else {
            self.searched = self.bytes.len();
            return if self.bytes.len() > LINE_BYTES_MAX { Err(LineTooLong) } else { Ok(None) };
        };
        let line = self.bytes.split_to(at).freeze();
        self.bytes.advance(1);
        self.searched = 0;
        if line.len() > LINE_BYTES_MAX { Err(LineTooLong) } else { Ok(Some(line)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_the_chunks() {
        let text = b"one\n\ntwo\r\nthree";
        for size in 1..=text.len() {
            let mut buffer = LineBuffer::default();
            let mut lines = Vec::new();
            for chunk in text.chunks(size) {
                buffer.push(chunk);
                while let Some(line) = buffer.next_line().unwrap() {
                    lines.push(line);
                }
            }
            assert_eq!(lines, [&b"one"[..], b"", b"two\r"], "chunks of {size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_the_limit() {
        let mut buffer = LineBuffer::default();
        buffer.push(&vec![b'x'; LINE_BYTES_MAX]);
        assert_eq!(buffer.next_line(), Ok(None));
        buffer.push(b"x");
        assert_eq!(buffer.next_line(), Err(LineTooLong));
    }
}
