//! Deserializes a struct and names the field in every error.
//!
//! Serde's errors say what was expected but not where, so each value carries the name of its field.

use crate::problem::Problem;
use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Map, Value};
use std::fmt;

pub(crate) fn deserialize_object<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, Problem> {
    let fields = map.into_iter().map(|(name, value)| (name.clone(), NamedField { name, value }));
    T::deserialize(MapDeserializer::new(fields)).map_err(|FieldError { field, reason }| match field {
        Some(field) => Problem::invalid_field(&field, reason),
        None => Problem::invalid_body(reason),
    })
}

/// The field is `None` if the object itself is at fault: a field is unknown, missing or duplicate.
#[derive(Debug)]
struct FieldError {
    field: Option<String>,
    reason: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for FieldError {}

impl de::Error for FieldError {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self { field: None, reason: reason.to_string() }
    }
}

struct NamedField {
    name: String,
    value: Value,
}

impl NamedField {
    fn with_field_name<T>(name: String, result: Result<T, serde_json::Error>) -> Result<T, FieldError> {
        result.map_err(|error| FieldError { field: Some(name), reason: error.to_string() })
    }
}

impl IntoDeserializer<'_, FieldError> for NamedField {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
            Self::with_field_name(self.name, self.value.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for NamedField {
    type Error = FieldError;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq
        deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, FieldError> {
        Self::with_field_name(self.name, self.value.deserialize_unit_struct(name, visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        Self::with_field_name(self.name, self.value.deserialize_newtype_struct(name, visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, FieldError> {
        Self::with_field_name(self.name, self.value.deserialize_tuple(len, visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        Self::with_field_name(self.name, self.value.deserialize_tuple_struct(name, len, visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        Self::with_field_name(self.name, self.value.deserialize_struct(name, fields, visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        Self::with_field_name(self.name, self.value.deserialize_enum(name, variants, visitor))
    }
}
