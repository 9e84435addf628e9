//! Validates arguments before a tool runs.

use model::definition::ToolSpec;
use model::error::ErrorCode;
use model::json::JsonObject;
use model::limits::RECORD_BYTES_MAX;
use model::tool::ToolOutput;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// The record that starts the tool has to hold the arguments, where JSON escapes may double them.
const ARGUMENTS_BYTES_MAX: usize = RECORD_BYTES_MAX * 3 / 8;
const SCHEMA_ERRORS_MAX: usize = 5;
const KEY_CHARS_MAX: usize = 64;

/// Checks arguments against the schema of a tool. The error is the result for the model.
pub(crate) fn validate_arguments(spec: &ToolSpec, arguments: &str) -> Result<(), Box<ToolOutput>> {
    if arguments.len() > ARGUMENTS_BYTES_MAX {
        return Err(invalid_arguments(&spec.name, &format!("they have more than {ARGUMENTS_BYTES_MAX} bytes")));
    }
    let Ok(object) = serde_json::from_str::<JsonObject>(arguments) else {
        return Err(invalid_arguments(&spec.name, "they are not a JSON object"));
    };
    // Of two equal keys an approval rule might read one, and the tool the other.
    if let Err(error) = serde_json::from_str::<UniqueKeys>(arguments) {
        return Err(invalid_arguments(&spec.name, &error.to_string()));
    }
    // Invalid schemas are refused where they are declared; one that slips through allows everything.
    let Ok(schema) = jsonschema::validator_for(&spec.parameters) else { return Ok(()) };
    let object = serde_json::Value::Object(object);
    let errors: Vec<String> = schema
        .iter_errors(&object)
        .take(SCHEMA_ERRORS_MAX)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(invalid_arguments(&spec.name, &errors.join("; "))) }
}

fn invalid_arguments(name: &str, why: &str) -> Box<ToolOutput> {
    let message = format!("The arguments of `{name}` cannot be used: {why}. Nothing was run; call it again.");
    Box::new(ToolOutput::failed(ErrorCode::InvalidArguments, message))
}

/// Deserializes from a JSON value without duplicate keys, at any depth, and keeps nothing of it.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self, A::Error> {
        let mut known = HashSet::new();
        while let Some(key) = object.next_key::<String>()? {
            object.next_value::<Self>()?;
            if let Some(twice) = known.replace(key) {
                let shown: String = twice.chars().take(KEY_CHARS_MAX).collect();
                return Err(A::Error::custom(format_args!("the key {shown:?} stands twice")));
            }
        }
        Ok(self)
    }
}
