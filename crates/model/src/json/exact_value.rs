//! JSON whose numbers keep the text in which they were written.
//!
//! [`serde_json::Value`] holds a number as 64 bits: a longer integer becomes the float next to it, `-0` becomes `-0.0` and
//! `1e2` becomes `100.0`. What a person approves, and what a client wants back unchanged, is an [`ExactValue`]. Otherwise it
//! is what a `Value` is: keys are sorted, and strings have their characters, not their escapes.

mod deserializer;
mod number;

pub use number::NumberText;

use super::JsonObject;
use super::unique_keys::{JsonLimits, parse_unique_json};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The name by which the deserializer of an [`ExactValue`] knows that another one is to be read.
const EXACT_VALUE_TOKEN: &str = "$model::ExactValue";

/// A JSON value whose numbers keep their text. Two are equal if their numbers are written in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExactValue {
    #[default]
    Null,
    Bool(bool),
    Number(NumberText),
    String(String),
    Array(Vec<ExactValue>),
    Object(ExactObject),
}

pub type ExactObject = BTreeMap<String, ExactValue>;

impl ExactValue {
    /// Parses one JSON document.
    ///
    /// # Errors
    /// When the text is not one, has a duplicate key, or a number that is out of the range of a `f64`.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        parse_unique_json(text.as_bytes(), JsonLimits::NONE)
    }

    pub const fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The value with each number as the nearest one of 64 bits.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => number.nearest().map_or(Value::Null, Value::Number),
            Self::String(text) => Value::String(text.clone()),
            Self::Array(list) => Value::Array(list.iter().map(Self::to_value).collect()),
            Self::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), value.to_value())).collect::<JsonObject>().into()
            }
        }
    }
}

/// What the value is as JSON. `null` if it has no JSON, such as a map whose keys are not strings.
#[must_use]
pub fn to_exact_value(value: &impl Serialize) -> ExactValue {
    serde_json::to_string(value).and_then(|text| ExactValue::parse(&text)).unwrap_or_default()
}

impl From<Value> for ExactValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(number.into()),
            Value::String(text) => Self::String(text),
            Value::Array(list) => Self::Array(list.into_iter().map(Self::from).collect()),
            Value::Object(members) => Self::Object(to_exact_object(members)),
        }
    }
}

#[must_use]
pub fn to_exact_object(members: JsonObject) -> ExactObject {
    members.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// The JSON text, without spaces.
impl fmt::Display for ExactValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for ExactValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(list) => serializer.collect_seq(list),
            Self::Object(members) => serializer.collect_map(members),
        }
    }
}

/// Reads the text of the value, so it needs a deserializer that has one: that of `serde_json`, or that of another
/// [`ExactValue`]. The derived readers of tagged enums and flattened structs have none.
impl<'de> Deserialize<'de> for ExactValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(EXACT_VALUE_TOKEN, SourceTextVisitor)
    }
}

struct SourceTextVisitor;

impl<'de> Visitor<'de> for SourceTextVisitor {
    type Value = ExactValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<ExactValue, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        ExactValue::parse(text.get()).map_err(D::Error::custom)
    }

    /// From the deserializer of an [`ExactValue`].
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ExactValue, E> {
        ExactValue::parse(text).map_err(E::custom)
    }
}

/// As that of [`Value`].
impl JsonSchema for ExactValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Value::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Value::json_schema(generator)
    }
}

#[cfg(test)]
mod tests;
