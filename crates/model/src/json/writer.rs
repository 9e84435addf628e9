//! Writes JSON, byte for byte as `serde_json` does, at a fraction of its instructions: names of members are written without
//! looking for characters to escape, and texts are searched for them eight bytes at a time. Nearly all of what a server
//! writes are events of a few short members, so this is what a delta costs.

use super::output::{JsonOutput, OutputWriter};
use super::text_writer::{TextKind, TextWriter, write_text};
use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::{Error, Result};

/// How `serde_json` names a text that is JSON already.
pub(super) const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Appends a value as JSON.
///
/// # Errors
/// As in `serde_json`: a key of a map is not a text or a number, or the value itself refuses.
pub fn write_json<B: JsonOutput>(out: &mut B, value: &(impl Serialize + ?Sized)) -> Result<()> {
    value.serialize(JsonWriter { out })
}

struct JsonWriter<'a, B> {
    out: &'a mut B,
}

/// The members of an object or the elements of a list.
struct Members<'a, B> {
    out: &'a mut B,
    is_first: bool,
    /// Closes it.
    end: &'static [u8],
}

impl<'a, B: JsonOutput> Members<'a, B> {
    fn open(out: &'a mut B, start: &'static [u8], end: &'static [u8]) -> Self {
        out.put_slice(start);
        Self { out, is_first: true, end }
    }

    /// `{"Variant":{`, or a list in it.
    fn open_variant(out: &'a mut B, variant: &'static str, start: &'static [u8], end: &'static [u8]) -> Self {
        write_variant(out, variant);
        Self::open(out, start, end)
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.put_slice(b",");
        }
    }

    fn write_element(&mut self, value: &(impl Serialize + ?Sized)) -> Result<()> {
        self.separate();
        write_json(self.out, value)
    }

    /// Names in the code have nothing to escape.
    fn write_member(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Result<()> {
        let start: &[u8] = if std::mem::take(&mut self.is_first) { b"\"" } else { b",\"" };
        self.out.put_slice(start);
        self.out.put_slice(name.as_bytes());
        self.out.put_slice(b"\":");
        write_json(self.out, value)
    }

    fn close(self) -> Result<()> {
        self.out.put_slice(self.end);
        Ok(())
    }
}

fn write_variant<B: JsonOutput>(out: &mut B, variant: &'static str) {
    out.put_slice(b"{");
    write_text(out, variant);
    out.put_slice(b":");
}

impl<'a, B: JsonOutput> JsonWriter<'a, B> {
    fn write_number(self, number: impl itoa::Integer) {
        self.out.put_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// For what is rare.
    fn write_with_serde_json(self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(OutputWriter(self.out), value)
    }

    fn open_list(self) -> Members<'a, B> {
        Members::open(self.out, b"[", b"]")
    }

    fn open_object(self) -> Members<'a, B> {
        Members::open(self.out, b"{", b"}")
    }
}

macro_rules! write_numbers {
    ($($method:ident: $number:ty),+) => {
        $(fn $method(self, number: $number) -> Result<()> {
            self.write_number(number);
            Ok(())
        })+
    };
}

impl<'a, B: JsonOutput> Serializer for JsonWriter<'a, B> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Members<'a, B>;
    type SerializeTuple = Members<'a, B>;
    type SerializeTupleStruct = Members<'a, B>;
    type SerializeTupleVariant = Members<'a, B>;
    type SerializeMap = Members<'a, B>;
    type SerializeStruct = StructMembers<'a, B>;
    type SerializeStructVariant = Members<'a, B>;

    write_numbers!(
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

    fn serialize_bool(self, value: bool) -> Result<()> {
        self.out.put_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<()> {
        self.write_with_serde_json(&value)
    }

    fn serialize_f64(self, value: f64) -> Result<()> {
        self.write_with_serde_json(&value)
    }

    fn serialize_char(self, value: char) -> Result<()> {
        write_text(self.out, value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<()> {
        write_text(self.out, text);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<()> {
        self.write_with_serde_json(&bytes)
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.out.put_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        write_variant(self.out, variant);
        write_json(self.out, value)?;
        self.out.put_slice(b"}");
        Ok(())
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Self::SerializeSeq> {
        Ok(self.open_list())
    }

    fn serialize_tuple(self, _length: usize) -> Result<Self::SerializeTuple> {
        Ok(self.open_list())
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<Self::SerializeTupleStruct> {
        Ok(self.open_list())
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleVariant> {
        Ok(Members::open_variant(self.out, variant, b"[", b"]}"))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Self::SerializeMap> {
        Ok(self.open_object())
    }

    fn serialize_struct(self, name: &'static str, _length: usize) -> Result<Self::SerializeStruct> {
        Ok(if name == RAW_VALUE { StructMembers::Raw(self.out) } else { StructMembers::Members(self.open_object()) })
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant> {
        Ok(Members::open_variant(self.out, variant, b"{", b"}}"))
    }
}

/// The members of a struct, or a text that is JSON already.
enum StructMembers<'a, B> {
    Members(Members<'a, B>),
    Raw(&'a mut B),
}

impl<B: JsonOutput> SerializeStruct for StructMembers<'_, B> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        match self {
            Self::Members(members) => members.write_member(name, value),
            Self::Raw(out) => value.serialize(TextWriter { out: *out, kind: TextKind::Json }),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Members(members) => members.close(),
            Self::Raw(_) => Ok(()),
        }
    }
}

impl<B: JsonOutput> SerializeStructVariant for Members<'_, B> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        self.write_member(name, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<B: JsonOutput> SerializeMap for Members<'_, B> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.separate();
        key.serialize(TextWriter { out: &mut *self.out, kind: TextKind::Key })
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.out.put_slice(b":");
        write_json(self.out, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<B: JsonOutput> SerializeSeq for Members<'_, B> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.write_element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<B: JsonOutput> SerializeTuple for Members<'_, B> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.write_element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<B: JsonOutput> SerializeTupleStruct for Members<'_, B> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.write_element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl<B: JsonOutput> SerializeTupleVariant for Members<'_, B> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.write_element(value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
