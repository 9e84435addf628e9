//! Where JSON is written: into one buffer, or into pieces of which the longest are not copied.

use bytes::{Bytes, BytesMut};
use std::io;

/// A shorter text is copied: a piece of its own costs more.
pub const SHARED_TEXT_BYTES_MIN: usize = 256 * 1024;

/// Takes JSON as it is written.
pub trait JsonOutput {
    fn put_slice(&mut self, bytes: &[u8]);

    /// Takes a text that it has as JSON already. Returns whether it has.
    fn put_shared_text(&mut self, _text: &str) -> bool {
        false
    }
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

/// A long text that is written without a copy.
#[derive(Clone, Debug)]
pub struct SharedJson {
    /// The text, or a piece of JSON. It is recognised by its address when it is written.
    pub source: Bytes,
    /// What is written for it, without quotes.
    pub json: Bytes,
}

impl From<Bytes> for SharedJson {
    /// What is written as it is.
    fn from(source: Bytes) -> Self {
        Self { json: source.clone(), source }
    }
}

/// JSON in consecutive pieces. A long text that somebody holds as [`SharedJson`] becomes a piece without a copy: 40 MB that
/// are copied are also 10,000 pages of new memory.
#[derive(Debug, Default)]
pub struct JsonPieces {
    shared: Vec<SharedJson>,
    pieces: Vec<Bytes>,
    last: BytesMut,
}

impl JsonPieces {
    /// Pieces among which these long texts may be.
    pub fn with_shared(shared: Vec<SharedJson>) -> Self {
        Self { shared, ..Self::default() }
    }

    pub fn into_pieces(mut self) -> Vec<Bytes> {
        self.push_last();
        self.pieces
    }

    fn find_shared(&self, bytes: &[u8]) -> Option<Bytes> {
        if bytes.len() < SHARED_TEXT_BYTES_MIN {
            return None;
        }
        let is_written =
            |text: &&SharedJson| text.source.as_ptr() == bytes.as_ptr() && text.source.len() == bytes.len();
        self.shared.iter().find(is_written).map(|text| text.json.clone())
    }

    fn push_piece(&mut self, piece: Bytes) {
        self.push_last();
        self.pieces.push(piece);
    }

    fn push_last(&mut self) {
        if !self.last.is_empty() {
            self.pieces.push(self.last.split().freeze());
        }
    }
}

impl JsonOutput for JsonPieces {
    fn put_slice(&mut self, bytes: &[u8]) {
        match self.find_shared(bytes) {
            Some(piece) => self.push_piece(piece),
            None => self.last.extend_from_slice(bytes),
        }
    }

    fn put_shared_text(&mut self, text: &str) -> bool {
        let Some(piece) = self.find_shared(text.as_bytes()) else { return false };
        self.last.extend_from_slice(b"\"");
        self.push_piece(piece);
        self.last.extend_from_slice(b"\"");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::write_json;
    use crate::shared_text::SharedText;

    #[test]
    fn long_shared_texts_are_pieces_of_their_own() {
        let [long, escaped] = ["x", "\"\n"].map(|text| SharedText::from(text.repeat(SHARED_TEXT_BYTES_MIN)));
        let (short, copy) = (SharedText::from("short"), long.to_string());
        let value = [&*long, &*escaped, &*short, &*copy, &*long, &*escaped];
        let shared = [&long, &escaped, &short].map(SharedText::to_json);
        let mut out = JsonPieces::with_shared(shared.to_vec());
        write_json(&mut out, &value).unwrap();
        let pieces = out.into_pieces();
        assert_eq!(pieces.concat(), serde_json::to_vec(&value).unwrap());
        let count = |json: &SharedJson| pieces.iter().filter(|piece| piece.as_ptr() == json.json.as_ptr()).count();
        assert_eq!((shared.each_ref().map(count), pieces.len()), ([2, 2, 0], 9));
    }

    #[test]
    fn without_a_long_text_there_is_one_piece() {
        let mut out = JsonPieces::default();
        assert!(JsonPieces::default().into_pieces().is_empty());
        write_json(&mut out, &["a", "b"]).unwrap();
        assert_eq!(out.into_pieces(), [Bytes::from_static(br#"["a","b"]"#)]);
    }
}
