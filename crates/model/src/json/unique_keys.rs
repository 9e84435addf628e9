//! The one reader that refuses objects with a duplicate key. Where two readers of the same text keep different
//! occurrences of a key, one checks a value that the other never uses.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// How much of a duplicate key an error message quotes.
const QUOTED_KEY_CHARS_MAX: usize = 64;

/// Bounds on a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Nesting depth of arrays and objects.
    pub depth_max: usize,
    /// Number of values, nested ones included: many small values take a multiple of their text in memory.
    pub values_max: usize,
}

impl JsonLimits {
    /// No bound but `serde_json`'s own recursion limit.
    pub const NONE: Self = Self { depth_max: usize::MAX, values_max: usize::MAX };
}

/// Parses one JSON document and refuses an object, at any depth, that has the same key twice.
///
/// # Errors
/// When the text is not one JSON document, has a duplicate key or exceeds the limits. The message quotes nothing of the
/// text but the beginning of a duplicate key.
pub fn parse_unique_json(text: &[u8], limits: JsonLimits) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let values_left = Cell::new(limits.values_max);
    let value = UniqueKeysSeed { limits, depth: 0, values_left: &values_left }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Checks that no object of the document, at any depth, has the same key twice.
///
/// # Errors
/// As [`parse_unique_json`].
pub fn reject_duplicate_keys(text: &str) -> Result<(), serde_json::Error> {
    parse_unique_json(text.as_bytes(), JsonLimits::NONE).map(drop)
}

#[derive(Clone, Copy)]
struct UniqueKeysSeed<'a> {
    limits: JsonLimits,
    depth: usize,
    values_left: &'a Cell<usize>,
}

impl UniqueKeysSeed<'_> {
    fn nested<E: Error>(self) -> Result<Self, E> {
        let depth_max = self.limits.depth_max;
        if self.depth == depth_max {
            return Err(E::custom(format_args!("nested deeper than {depth_max}")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for UniqueKeysSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let values_left = self.values_left.get().checked_sub(1);
        let too_many = || D::Error::custom(format_args!("more than {} values", self.limits.values_max));
        self.values_left.set(values_left.ok_or_else(too_many)?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeysSeed<'_> {
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

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
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
                let quoted: String = key.chars().take(QUOTED_KEY_CHARS_MAX).collect();
                return Err(A::Error::custom(format_args!("duplicate key {quoted:?}")));
            }
            let value = access.next_value_seed(inner)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_without_duplicates_is_parsed_as_serde_json_parses_it() {
        let text = r#"{"a": [1, -2, 0.1, 1e300, "é", null, true, {"a": {}}], "b": {"a": 18446744073709551615}}"#;
        let parsed = parse_unique_json(text.as_bytes(), JsonLimits::NONE).unwrap();
        assert_eq!(parsed, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn a_duplicate_key_is_refused_at_any_depth_and_quoted_in_part() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"c":[{"a":1,"\u0061":2}]}}]"#] {
            let error = reject_duplicate_keys(text).unwrap_err().to_string();
            assert!(error.starts_with("duplicate key \"a\""), "{error}");
        }
        let long = "k".repeat(1000);
        let error = reject_duplicate_keys(&format!("{{\"{long}\":1,\"{long}\":2}}")).unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
        assert!(reject_duplicate_keys(r#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
        for text in ["", "{} {}", "{\"a\":", "nonsense"] {
            assert!(reject_duplicate_keys(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_are_inclusive() {
        let limits = JsonLimits { depth_max: 2, values_max: 4 };
        let parse = |text: &str| parse_unique_json(text.as_bytes(), limits).map_err(|error| error.to_string());
        assert_eq!(parse("[[1,2]]"), Ok(json!([[1, 2]])));
        assert!(parse("[[[]]]").unwrap_err().starts_with("nested deeper than 2"));
        assert!(parse("[1,2,3,4]").unwrap_err().starts_with("more than 4 values"));
    }
}
