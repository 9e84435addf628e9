//! One object → a struct, with the field's name in every refusal.
//!
//! Serde's own errors say what was expected and not where; here each field's value carries its name along.

use crate::problem::Problem;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde_json::{Error, Map, Value};

/// The object as a struct of this shape.
pub(crate) fn deserialize_object<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, Problem> {
    let fields = map.into_iter().map(|(name, value)| (name.clone(), NamedField { name, value }));
    T::deserialize(MapDeserializer::new(fields)).map_err(|error: Error| Problem::invalid_body(error.to_string()))
}

/// A value and the name that it goes by.
struct NamedField {
    name: String,
    value: Value,
}

impl NamedField {
    fn with_field_name<T>(name: &str, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| Error::custom(format_args!("`{name}`: {error}")))
    }
}

impl IntoDeserializer<'_, Error> for NamedField {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            Self::with_field_name(&self.name, self.value.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for NamedField {
    type Error = Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq
        deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        Self::with_field_name(&self.name, self.value.deserialize_unit_struct(name, visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        Self::with_field_name(&self.name, self.value.deserialize_newtype_struct(name, visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        Self::with_field_name(&self.name, self.value.deserialize_tuple(len, visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        Self::with_field_name(&self.name, self.value.deserialize_tuple_struct(name, len, visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Self::with_field_name(&self.name, self.value.deserialize_struct(name, fields, visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Self::with_field_name(&self.name, self.value.deserialize_enum(name, variants, visitor))
    }
}
