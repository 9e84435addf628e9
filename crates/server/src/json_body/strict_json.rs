//! A JSON parser that rejects what two parsers could read differently.

use crate::problem::Problem;
use model::error::{ErrorCode, truncate_text};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

const DEPTH_MAX: usize = 32;
/// Bounds memory: a small value takes a multiple of its text, so a large body must consist of few long values.
const VALUES_MAX: usize = 512 * 1024;

pub(crate) fn parse_strict_json(text: &[u8]) -> Result<Value, Problem> {
    let invalid = |why: String| Problem::new(ErrorCode::InvalidJson, why);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let left = Cell::new(VALUES_MAX);
    let value = StrictJsonSeed { depth: 0, values_left: &left }
        .deserialize(&mut reader)
        .map_err(|error| invalid(error_text(&error)))?;
    reader.end().map_err(|error| invalid(error_text(&error)))?;
    if has_nul(&value) {
        let detail = "a string contains a NUL character (\\u0000), which cannot be stored";
        return Err(Problem::new(ErrorCode::NulCharacter, detail));
    }
    Ok(value)
}

/// The parser's messages name the grammar and the position and quote no more of the text than a duplicate key.
fn error_text(error: &serde_json::Error) -> String {
    truncate_text(&error.to_string(), 200).into_owned()
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(list) => list.iter().any(has_nul),
        Value::Object(map) => map.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[derive(Clone, Copy)]
struct StrictJsonSeed<'a> {
    depth: usize,
    values_left: &'a Cell<usize>,
}

impl StrictJsonSeed<'_> {
    fn nested<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_MAX}")));
        }
        Ok(Self { depth: self.depth + 1, values_left: self.values_left })
    }
}

impl<'de> DeserializeSeed<'de> for StrictJsonSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.values_left.get().checked_sub(1);
        self.values_left.set(left.ok_or_else(|| D::Error::custom(format_args!("more than {VALUES_MAX} values")))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJsonSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(inner)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                let key = truncate_text(&key, 64);
                return Err(A::Error::custom(format_args!("duplicate key {key:?}")));
            }
            let value = access.next_value_seed(inner)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
