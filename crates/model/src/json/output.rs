//! Where JSON is written: into one buffer, or into pieces of which the longest are not copied.

use bytes::{Bytes, BytesMut};
use std::io;

/// A shorter text is copied: a piece of its own costs more.
pub const SHARED_TEXT_BYTES_MIN: usize = 256 * 1024;

/// Takes JSON as it is written.
pub trait JsonOutput {
    fn put_slice(&mut self, bytes: &[u8]);
}

impl JsonOutput for Vec<u8> {
    fn put_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl JsonOutput for BytesMut {
    fn put_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// For what is written by `serde_json`.
pub(super) struct OutputWriter<'a, B>(pub(super) &'a mut B);

impl<B: JsonOutput> io::Write for OutputWriter<'_, B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// JSON in consecutive pieces. A long text that is written as it is, and that somebody holds as [`Bytes`], becomes a piece
/// without a copy: 40 MB that are copied are also 10,000 pages of new memory.
#[derive(Debug, Default)]
pub struct JsonPieces {
    shared: Vec<Bytes>,
    pieces: Vec<Bytes>,
    last: BytesMut,
}

impl JsonPieces {
    /// Pieces among which these long texts may be.
    pub fn with_shared(texts: impl IntoIterator<Item = Bytes>) -> Self {
        let shared = texts.into_iter().filter(|text| text.len() >= SHARED_TEXT_BYTES_MIN).collect();
        Self { shared, ..Self::default() }
    }

    pub fn into_pieces(mut self) -> Vec<Bytes> {
        self.push_last();
        self.pieces
    }

    fn push_last(&mut self) {
        if !self.last.is_empty() {
            self.pieces.push(self.last.split().freeze());
        }
    }
}

impl JsonOutput for JsonPieces {
    fn put_slice(&mut self, bytes: &[u8]) {
        let is_written = |text: &&Bytes| text.as_ptr() == bytes.as_ptr() && text.len() == bytes.len();
        let shared = if bytes.len() < SHARED_TEXT_BYTES_MIN { None } else { self.shared.iter().find(is_written) };
        match shared.cloned() {
            Some(text) => {
                self.push_last();
                self.pieces.push(text);
            }
            None => self.last.extend_from_slice(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::write_json;

    #[test]
    fn long_shared_texts_are_pieces_of_their_own() {
        let long = Bytes::from("x".repeat(SHARED_TEXT_BYTES_MIN));
        let escaped = Bytes::from("\"".repeat(SHARED_TEXT_BYTES_MIN));
        let short = Bytes::from_static(b"short");
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let read = |bytes: &'static [u8]| std::str::from_utf8(bytes).unwrap();
        let [long_text, escaped_text] = [&long, &escaped].map(|bytes| std::str::from_utf8(bytes).unwrap());
        let value = [long_text, escaped_text, read(b"short"), &text(&long), long_text];
        let mut out = JsonPieces::with_shared([long.clone(), escaped.clone(), short]);
        write_json(&mut out, &value).unwrap();
        let pieces = out.into_pieces();
        assert_eq!(pieces.concat(), serde_json::to_vec(&value).unwrap());
        let shared = pieces.iter().filter(|piece| piece.as_ptr() == long.as_ptr()).count();
        assert_eq!((shared, pieces.len()), (2, 5));
    }

    #[test]
    fn without_a_long_text_there_is_one_piece() {
        let mut out = JsonPieces::default();
        assert!(JsonPieces::default().into_pieces().is_empty());
        write_json(&mut out, &["a", "b"]).unwrap();
        assert_eq!(out.into_pieces(), [Bytes::from_static(br#"["a","b"]"#)]);
    }
}
