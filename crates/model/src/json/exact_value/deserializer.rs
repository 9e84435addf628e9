//! Reads any type from an [`ExactValue`], as `serde_json` reads it from a `Value`. A member that is itself an
//! [`ExactValue`] gets its numbers as they were written, all others the nearest ones of 64 bits.

use super::{EXACT_VALUE_TOKEN, ExactObject, ExactValue};
use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Error;

impl<'de> IntoDeserializer<'de, Error> for ExactValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for ExactValue {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Number(number) => {
                let number = number.nearest().ok_or_else(|| Error::custom("a number out of range"))?;
                number.deserialize_any(visitor)
            }
            Self::String(text) => visitor.visit_string(text),
            Self::Array(list) => {
                let mut items = SeqDeserializer::new(list.into_iter());
                let value = visitor.visit_seq(&mut items)?;
                items.end().map(|()| value)
            }
            Self::Object(members) => {
                let mut members = MapDeserializer::new(members.into_iter());
                let value = visitor.visit_map(&mut members)?;
                members.end().map(|()| value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name == EXACT_VALUE_TOKEN {
            return visitor.visit_str(&self.to_string());
        }
        visitor.visit_newtype_struct(self)
    }

    /// A variant by its name, or as the only member of an object.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::String(name) => visitor.visit_enum(StringDeserializer::new(name)),
            Self::Object(members) if members.len() == 1 => visitor.visit_enum(variant_of(members)),
            Self::Object(_) => Err(Error::invalid_value(Unexpected::Map, &"map with a single key")),
            other => Err(Error::invalid_type(other.unexpected(), &"string or map")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

fn variant_of<'de>(
    members: ExactObject,
) -> MapAccessDeserializer<MapDeserializer<'de, <ExactObject as IntoIterator>::IntoIter, Error>> {
    MapAccessDeserializer::new(MapDeserializer::new(members.into_iter()))
}

impl ExactValue {
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Null => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Number(_) => Unexpected::Other("number"),
            Self::String(text) => Unexpected::Str(text),
            Self::Array(_) => Unexpected::Seq,
            Self::Object(_) => Unexpected::Map,
        }
    }
}
