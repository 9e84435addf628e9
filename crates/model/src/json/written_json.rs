//! JSON that is written once and repeated as it is.

use super::output::{JsonPieces, SHARED_TEXT_BYTES_MIN, SharedJson};
use super::writer::{RAW_VALUE, write_json};
use bytes::Bytes;
use serde::ser::{Serialize, SerializeStruct, Serializer};

const SHORT_JSON_BYTES: usize = 256;

/// A value as JSON text. Like `serde_json`'s `RawValue`, which parses what it is made of. With a long text it can be written
/// by [`write_json`] alone.
#[derive(Debug)]
pub struct WrittenJson(JsonForm);

#[derive(Debug)]
enum JsonForm {
    Whole(String),
    /// The long ones are shared.
    Pieces(Vec<Bytes>),
}

impl WrittenJson {
    /// Writes a value with these long texts. `None` if the value cannot be written, as in [`write_json`].
    pub fn new(value: &impl Serialize, long_texts: Vec<SharedJson>) -> Option<Self> {
        if !long_texts.is_empty() {
            let mut out = JsonPieces::with_shared(long_texts);
            write_json(&mut out, value).ok()?;
            return Some(Self(JsonForm::Pieces(out.into_pieces())));
        }
        let mut out = Vec::with_capacity(SHORT_JSON_BYTES);
        write_json(&mut out, value).ok()?;
        // It may be kept for as long as the run goes on.
        if out.capacity() - out.len() > out.len() / 8 {
            out.shrink_to_fit();
        }
        String::from_utf8(out).ok().map(|json| Self(JsonForm::Whole(json)))
    }

    pub const fn has_long_pieces(&self) -> bool {
        matches!(self.0, JsonForm::Pieces(_))
    }

    /// The long pieces, for what repeats the value.
    pub fn long_pieces(&self) -> impl Iterator<Item = SharedJson> {
        let pieces = match &self.0 {
            JsonForm::Whole(_) => &[][..],
            JsonForm::Pieces(pieces) => pieces,
        };
        pieces.iter().filter(|piece| piece.len() >= SHARED_TEXT_BYTES_MIN).cloned().map(SharedJson::from)
    }

    /// The size without long pieces.
    pub fn short_bytes(&self) -> usize {
        match &self.0 {
            JsonForm::Whole(json) => json.len(),
            JsonForm::Pieces(pieces) => {
                pieces.iter().map(Bytes::len).filter(|bytes| *bytes < SHARED_TEXT_BYTES_MIN).sum()
            }
        }
    }
}

impl Serialize for WrittenJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = serializer.serialize_struct(RAW_VALUE, 1)?;
        match &self.0 {
            JsonForm::Whole(json) => raw.serialize_field(RAW_VALUE, json)?,
            JsonForm::Pieces(pieces) => {
                for piece in pieces {
                    raw.serialize_field(RAW_VALUE, &JsonPiece(piece))?;
                }
            }
        }
        raw.end()
    }
}

struct JsonPiece<'a>(&'a [u8]);

impl Serialize for JsonPiece<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_text::SharedText;
    use serde_json::json;

    fn written_twice(written: &WrittenJson) -> String {
        let mut out = Vec::new();
        write_json(&mut out, &[written, written]).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn it_is_repeated_as_it_was_written() {
        let value = json!({"text": "a \"short\" text\n", "list": [1.5, null]});
        let written = WrittenJson::new(&value, Vec::new()).unwrap();
        assert_eq!(written_twice(&written), format!("[{value},{value}]"));
        assert_eq!(serde_json::to_string(&written).unwrap(), value.to_string());
        assert_eq!(serde_json::to_value(&written).unwrap(), value);
        assert_eq!((written.short_bytes(), written.long_pieces().count()), (value.to_string().len(), 0));
    }

    #[test]
    fn long_texts_are_shared_with_what_repeats_it() {
        let texts = ["plain ", "\"line\"\n"].map(|text| SharedText::from(text.repeat(SHARED_TEXT_BYTES_MIN)));
        let json = texts.each_ref().map(SharedText::to_json);
        let written = WrittenJson::new(&texts, json.to_vec()).unwrap();
        let value = serde_json::to_string(&texts).unwrap();
        assert_eq!(written_twice(&written), format!("[{value},{value}]"));
        assert_eq!(written.short_bytes(), r#"["",""]"#.len());
        let mut out = JsonPieces::with_shared(written.long_pieces().collect());
        write_json(&mut out, &written).unwrap();
        let pieces = out.into_pieces();
        let [plain, escaped] = json.map(|json| json.json.as_ptr());
        assert_eq!([pieces[1].as_ptr(), pieces[3].as_ptr()], [plain, escaped]);
    }
}
