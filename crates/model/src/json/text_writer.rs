//! Writes texts as JSON, and what has to be a text: keys of maps, and JSON that is written as it is.

use super::output::{JsonOutput, OutputWriter};
use bytes::Bytes;
use serde::ser::{self, Impossible, Serialize, Serializer};
use serde_json::{Error, Result};

pub(super) fn write_text<B: JsonOutput>(out: &mut B, text: &str) {
    if out.put_shared_text(text) {
        return;
    }
    if needs_escapes(text.as_bytes()) {
        // Writing to memory cannot fail.
        let _ok = serde_json::to_writer(OutputWriter(out), text);
        return;
    }
    out.put_slice(b"\"");
    out.put_slice(text.as_bytes());
    out.put_slice(b"\"");
}

/// A text with its escapes and without quotes; `None` if it needs no escapes.
pub(crate) fn escape_text(text: &str) -> Option<Bytes> {
    if !needs_escapes(text.as_bytes()) {
        return None;
    }
    // A buffer that grew would copy it.
    let mut json = Vec::with_capacity(text.len() + text.len() / 16 + 64);
    // Writing to memory cannot fail.
    let _ok = serde_json::to_writer(&mut json, text);
    let quoted = Bytes::from(json);
    Some(quoted.slice(1..quoted.len().saturating_sub(1).max(1)))
}

/// Whether a text has a quote, a backslash or a control character.
fn needs_escapes(text: &[u8]) -> bool {
    // Without a branch per word, the compiler uses vector instructions: a long text takes a third of the time.
    let (blocks, text) = text.as_chunks::<64>();
    let has_escape = |block: &[u8; 64]| {
        let (words, _) = block.as_chunks::<8>();
        words.iter().fold(0, |found, word| found | escaped_bytes(u64::from_le_bytes(*word))) != 0
    };
    if blocks.iter().any(has_escape) {
        return true;
    }
    // The last eight bytes may overlap with those before them: that costs less than looking at each of the rest.
    let Some(last) = text.last_chunk::<8>() else {
        return text.iter().any(|byte| matches!(byte, b'"' | b'\\') || *byte < b' ');
    };
    let (chunks, _) = text.as_chunks::<8>();
    chunks.iter().chain([last]).any(|chunk| escaped_bytes(u64::from_le_bytes(*chunk)) != 0)
}

/// Not zero if one of eight bytes is a quote, a backslash or a control character.
const fn escaped_bytes(bytes: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES << 7;
    /// Sets the high bit of the lowest byte that is below `limit`, and perhaps of bytes after it; of none if there is none.
    const fn below(bytes: u64, limit: u64) -> u64 {
        bytes.wrapping_sub(ONES * limit) & !bytes & HIGH_BITS
    }
    let quote = below(bytes ^ (ONES * 0x22), 1);
    let backslash = below(bytes ^ (ONES * 0x5c), 1);
    quote | backslash | below(bytes, 0x20)
}

/// Writes what has to be a text.
pub(super) struct TextWriter<'a, B> {
    pub(super) out: &'a mut B,
    pub(super) kind: TextKind,
}

#[derive(Clone, Copy)]
pub(super) enum TextKind {
    /// A key of a map.
    Key,
    /// JSON that is written as it is.
    Json,
}

impl<B: JsonOutput> TextWriter<'_, B> {
    fn write_number(self, number: impl itoa::Integer) -> Result<()> {
        self.serialize_str(itoa::Buffer::new().format(number))
    }
}

macro_rules! write_number_keys {
    ($($method:ident: $number:ty),+) => {
        $(fn $method(self, number: $number) -> Result<()> {
            self.write_number(number)
        })+
    };
}

fn not_a_text<T>() -> Result<T> {
    Err(ser::Error::custom("key must be a string"))
}

impl<B: JsonOutput> Serializer for TextWriter<'_, B> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Impossible<(), Error>;
    type SerializeTuple = Impossible<(), Error>;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Impossible<(), Error>;
    type SerializeStruct = Impossible<(), Error>;
    type SerializeStructVariant = Impossible<(), Error>;

    write_number_keys!(
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128
    );

    fn serialize_str(self, text: &str) -> Result<()> {
        match self.kind {
            TextKind::Key => write_text(self.out, text),
            TextKind::Json => self.out.put_slice(text.as_bytes()),
        }
        Ok(())
    }

    fn serialize_bool(self, value: bool) -> Result<()> {
        self.serialize_str(if value { "true" } else { "false" })
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_f32(self, _value: f32) -> Result<()> {
        not_a_text()
    }

    fn serialize_f64(self, _value: f64) -> Result<()> {
        not_a_text()
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<()> {
        match self.kind {
            TextKind::Key => not_a_text(),
            TextKind::Json => {
                self.out.put_slice(bytes);
                Ok(())
            }
        }
    }

    fn serialize_none(self) -> Result<()> {
        not_a_text()
    }

    fn serialize_unit(self) -> Result<()> {
        not_a_text()
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<()> {
        not_a_text()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<()> {
        not_a_text()
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Self::SerializeSeq> {
        not_a_text()
    }

    fn serialize_tuple(self, _length: usize) -> Result<Self::SerializeTuple> {
        not_a_text()
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<Self::SerializeTupleStruct> {
        not_a_text()
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleVariant> {
        not_a_text()
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Self::SerializeMap> {
        not_a_text()
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Result<Self::SerializeStruct> {
        not_a_text()
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant> {
        not_a_text()
    }
}
