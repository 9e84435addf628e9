//! Reading JSON from outside: leniently where models and their services wrote it, strictly where two readers could
//! understand it in two ways. And writing it fast.

mod exact_value;
mod output;
mod tagged;
mod text_writer;
mod unique_keys;
mod writer;
mod written_json;

pub use exact_value::{ExactObject, ExactValue, NumberText, to_exact_object, to_exact_value};
pub use output::{JsonOutput, JsonPieces, SHARED_TEXT_BYTES_MIN, SharedJson};
pub(crate) use tagged::{read_tag, unknown_tag};
pub(crate) use text_writer::escape_text;
pub use unique_keys::{JsonLimits, parse_unique_json};
pub use writer::write_json;
pub use written_json::WrittenJson;

use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

pub type JsonObject = serde_json::Map<String, Value>;

/// Deserializes an optional value so that `null` is not the same as absent: what is written is read back (law 1).
pub(crate) fn deserialize_some<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Parses JSON from outside. Text that is JSON except for lone surrogates, raw control characters or numbers out of
/// range is repaired and parsed again: one bad character is no reason to lose a model turn.
///
/// # Errors
/// The error of the first attempt, when the text is not JSON after the repair either.
pub fn parse_lenient_json(data: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(data).or_else(|error| serde_json::from_str(&repair_json(data)).map_err(|_| error))
}

/// As [`parse_lenient_json`], with numbers as they were written.
///
/// # Errors
/// As [`parse_lenient_json`].
pub fn parse_lenient_exact(data: &str) -> Result<ExactValue, serde_json::Error> {
    let exact = ExactValue::parse(data).or_else(|_| ExactValue::parse(&repair_json(data)));
    exact.or_else(|_| parse_lenient_json(data).map(ExactValue::from))
}

/// Parses arguments to show them. Of a duplicate key the last value is shown; such arguments are never run.
///
/// # Errors
/// When the text is not a JSON object.
pub fn parse_exact_object(text: &str) -> Result<ExactObject, serde_json::Error> {
    match ExactValue::parse(text) {
        Ok(ExactValue::Object(members)) => Ok(members),
        _ => serde_json::from_str(text).map(to_exact_object),
    }
}

/// Replaces what a JSON parser refuses: in strings, lone surrogates by U+FFFD and raw control characters by their
/// escapes; outside strings, numbers that are not finite (`NaN`, `-Infinity`, `1e999`) by `null`.
fn repair_json(data: &str) -> String {
    let mut out = String::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.find('"') {
        let (outside, string) = rest.split_at(at);
        repair_numbers(outside, &mut out);
        rest = repair_string(string, &mut out);
    }
    repair_numbers(rest, &mut out);
    out
}

/// Repairs the string that `text` begins with and returns the text after its closing quote.
fn repair_string<'a>(text: &'a str, out: &mut String) -> &'a str {
    let mut chars = text.char_indices();
    out.extend(chars.next().map(|(_, quote)| quote));
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                out.push(c);
                break;
            }
            '\\' if text.get(at..).is_some_and(|text| text.starts_with("\\u")) => {
                let (escape, length) = repair_unicode_escape(text.get(at..).unwrap_or_default());
                out.push_str(&escape);
                for _ in 1..length {
                    chars.next();
                }
            }
            '\\' => {
                out.push(c);
                out.extend(chars.next().map(|(_, escaped)| escaped));
            }
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    chars.as_str()
}

/// Repairs the `\u` escape that `text` begins with and returns it with its length in the source. A surrogate pair is one
/// escape; a lone surrogate becomes U+FFFD.
fn repair_unicode_escape(text: &str) -> (Cow<'_, str>, usize) {
    let unit = |from: usize| {
        let escape = text.get(from..from + 6)?;
        u32::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
    };
    match (unit(0), unit(6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (text.get(..12).unwrap_or_default().into(), 12),
        (Some(0xd800..=0xdfff), _) => ("\\ufffd".into(), 6),
        (Some(_), _) => (text.get(..6).unwrap_or_default().into(), 6),
        (None, _) => ("\\ufffd".into(), 2),
    }
}

/// Copies text between strings, with `null` in place of numbers that are not finite.
fn repair_numbers(text: &str, out: &mut String) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let mut rest = text;
    while let Some(at) = rest.find(is_word) {
        let (before, tail) = rest.split_at(at);
        let (word, after) = tail.split_at(tail.find(|c| !is_word(c)).unwrap_or(tail.len()));
        out.push_str(before);
        let is_infinite = word.parse::<f64>().is_ok_and(|number| !number.is_finite());
        out.push_str(if is_infinite { "null" } else { word });
        rest = after;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn half_a_surrogate_pair_does_not_lose_the_event() {
        assert_eq!(
            parse_lenient_json(r#"{"a":"x\ud800y","b":"\uDE00"}"#).unwrap(),
            json!({"a": "x\u{fffd}y", "b": "\u{fffd}"})
        );
        assert_eq!(parse_lenient_json(r#"{"a":"\ud83d\ude00\ud83d"}"#).unwrap(), json!({"a": "😀\u{fffd}"}));
        assert_eq!(parse_lenient_json(r#"{"a":"\ud83d\ud83d\ude00"}"#).unwrap(), json!({"a": "\u{fffd}😀"}));
        assert_eq!(parse_lenient_json(r#"{"a":"\\ud800 \ud800"}"#).unwrap(), json!({"a": "\\ud800 \u{fffd}"}));
    }

    #[test]
    fn raw_control_characters_and_out_of_range_numbers_are_repaired() {
        assert_eq!(parse_lenient_json("{\"a\":\"x\ty\0z\"}").unwrap(), json!({"a": "x\ty\0z"}));
        let odd = r#"{"a":[NaN,-Infinity,1e999,-12.5],"NaN":"NaN, 1e999","b":true}"#;
        assert_eq!(
            parse_lenient_json(odd).unwrap(),
            json!({"a": [null, null, null, -12.5], "NaN": "NaN, 1e999", "b": true})
        );
    }

    #[test]
    fn invalid_json_stays_an_error() {
        for data in ["", "{", "{\"a\":\"\\u", "{\"a\":\"\\ud8", "nonsense", "<html>\"", "\"é\\u00é\"x"] {
            assert!(parse_lenient_json(data).is_err(), "{data}");
        }
    }
}
