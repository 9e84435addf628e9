//! The one reader that refuses objects with a duplicate key. Where two readers of the same text keep different
//! occurrences of a key, one checks a value that the other never uses.

use super::exact_value::{ExactObject, ExactValue, NumberText};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::collections::btree_map::Entry;
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
pub fn parse_unique_json(text: &[u8], limits: JsonLimits) -> Result<ExactValue, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let (values_left, numbers) = (Cell::new(limits.values_max), NumberTexts(Cell::new(text)));
    let seed = UniqueKeysSeed { limits, depth: 0, values_left: &values_left, numbers: &numbers };
    let value = seed.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct UniqueKeysSeed<'a> {
    limits: JsonLimits,
    depth: usize,
    values_left: &'a Cell<usize>,
    numbers: &'a NumberTexts<'a>,
}

/// The numbers of a JSON text in their order, which is the order in which a parser visits them. The parser itself hands on
/// 64 bits.
struct NumberTexts<'a>(Cell<&'a [u8]>);

impl<'a> NumberTexts<'a> {
    fn next(&self) -> Option<&'a str> {
        let mut rest = self.0.get();
        loop {
            match rest.split_first()? {
                (b'"', string) => rest = after_string(string),
                (b'-' | b'0'..=b'9', _) => break,
                (_, behind) => rest = behind,
            }
        }
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let (number, behind) = rest.split_at(rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len()));
        self.0.set(behind);
        std::str::from_utf8(number).ok()
    }
}

/// What is behind the string in which `text` begins.
fn after_string(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        let is_end = rest.get(at) == Some(&b'"');
        rest = rest.get(at + if is_end { 1 } else { 2 }..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

impl UniqueKeysSeed<'_> {
    fn nested<E: Error>(self) -> Result<Self, E> {
        let depth_max = self.limits.depth_max;
        if self.depth == depth_max {
            return Err(E::custom(format_args!("nested deeper than {depth_max}")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn next_number<E: Error>(self) -> Result<ExactValue, E> {
        let text = self.numbers.next().ok_or_else(|| E::custom("a number without a text"))?;
        Ok(ExactValue::Number(NumberText::from_checked(text)))
    }
}

impl<'de> DeserializeSeed<'de> for UniqueKeysSeed<'_> {
    type Value = ExactValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ExactValue, D::Error> {
        let values_left = self.values_left.get().checked_sub(1);
        let too_many = || D::Error::custom(format_args!("more than {} values", self.limits.values_max));
        self.values_left.set(values_left.ok_or_else(too_many)?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeysSeed<'_> {
    type Value = ExactValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<ExactValue, E> {
        Ok(ExactValue::Bool(value))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<ExactValue, E> {
        self.next_number()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<ExactValue, E> {
        self.next_number()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<ExactValue, E> {
        self.next_number()
    }

    fn visit_str<E>(self, value: &str) -> Result<ExactValue, E> {
        Ok(ExactValue::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<ExactValue, E> {
        Ok(ExactValue::String(value))
    }

    fn visit_unit<E>(self) -> Result<ExactValue, E> {
        Ok(ExactValue::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ExactValue, A::Error> {
        let inner = self.nested()?;
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(inner)? {
            list.push(value);
        }
        Ok(ExactValue::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<ExactValue, A::Error> {
        let inner = self.nested()?;
        let mut map = ExactObject::new();
        while let Some(key) = access.next_key::<String>()? {
            match map.entry(key) {
                Entry::Vacant(place) => drop(place.insert(access.next_value_seed(inner)?)),
                Entry::Occupied(place) => {
                    let quoted: String = place.key().chars().take(QUOTED_KEY_CHARS_MAX).collect();
                    return Err(A::Error::custom(format_args!("duplicate key {quoted:?}")));
                }
            }
        }
        Ok(ExactValue::Object(map))
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
        assert_eq!(parsed.to_value(), serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn a_duplicate_key_is_refused_at_any_depth_and_quoted_in_part() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"c":[{"a":1,"\u0061":2}]}}]"#] {
            let error = ExactValue::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("duplicate key \"a\""), "{error}");
        }
        let long = "k".repeat(1000);
        let error = ExactValue::parse(&format!("{{\"{long}\":1,\"{long}\":2}}")).unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
        assert!(ExactValue::parse(r#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
        for text in ["", "{} {}", "{\"a\":", "nonsense"] {
            assert!(ExactValue::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_are_inclusive() {
        let limits = JsonLimits { depth_max: 2, values_max: 4 };
        let parse = |text: &str| parse_unique_json(text.as_bytes(), limits).map_err(|error| error.to_string());
        assert_eq!(parse("[[1,2]]"), Ok(json!([[1, 2]]).into()));
        assert!(parse("[[[]]]").unwrap_err().starts_with("nested deeper than 2"));
        assert!(parse("[1,2,3,4]").unwrap_err().starts_with("more than 4 values"));
    }
}
