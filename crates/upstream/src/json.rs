//! Access to JSON from outside, which may have any shape.

use serde::de::IgnoredAny;
use serde_json::Value;

const ERROR_TEXT_CHARS_MAX: usize = 500;
/// Only secrets begin like this.
const SECRET_PREFIXES: [&str; 6] = ["sk-", "sk_", "key-", "AIza", "Bearer", "eyJ"];

pub(crate) fn str_field<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Takes the string out of the object, without a copy.
pub(crate) fn take_string_field(value: &mut Value, key: &str) -> Option<String> {
    match value.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Takes the value out of the object; `None` for `null`.
pub(crate) fn take_field(value: &mut Value, key: &str) -> Option<Value> {
    value.get_mut(key).map(Value::take).filter(|value| !value.is_null())
}

pub(crate) fn non_null_field<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}

pub(crate) fn u32_field(value: &Value, key: &str) -> Option<u32> {
    value.get(key).and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok())
}

/// An offset in a text: zero if the field is missing, the largest offset if it is larger. `None` if it is no offset.
pub(crate) fn offset_field(value: &Value, key: &str) -> Option<u32> {
    match value.get(key) {
        None | Some(Value::Null) => Some(0),
        Some(offset) => Some(u32::try_from(offset.as_u64()?).unwrap_or(u32::MAX)),
    }
}

/// Empty if the field is missing or not an array.
pub(crate) fn array_field<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Invalid counts are 0; fractions are truncated, and large numbers saturate.
pub(crate) fn token_count_field(value: &Value, key: &str) -> u64 {
    let Some(Value::Number(number)) = value.get(key) else { return 0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from a float, the cast saturates")]
    let from_float = || number.as_f64().unwrap_or_default() as u64;
    number.as_u64().unwrap_or_else(from_float)
}

/// Whether the text is one complete JSON object.
pub(crate) fn is_json_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Text from outside as an error message may quote it: one short line, without anything that looks like a secret. The
/// known secrets of a turn are redacted in `providers`; this catches the unknown ones.
pub(crate) fn sanitize_for_error(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if line.chars().count() > ERROR_TEXT_CHARS_MAX {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(if looks_like_secret(word) { "[removed]" } else { word });
    }
    match line.char_indices().nth(ERROR_TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Long enough for a key, with the prefix of one, possibly after punctuation.
fn looks_like_secret(word: &str) -> bool {
    let is_key = |word: &str| SECRET_PREFIXES.iter().any(|prefix| word.starts_with(prefix) && word.len() > 12);
    word.split(['"', '\'', '`', '=', ':', '(', '[', '{', ',']).any(is_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn token_counts_are_clamped_for_any_input() {
        let told = json!({"a": -3, "b": 2.9, "c": null, "d": "7", "e": u64::MAX, "f": 1e300, "g": 12});
        let counts = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|key| token_count_field(&told, key));
        assert_eq!(counts, [0, 2, 0, 0, u64::MAX, u64::MAX, 12, 0]);
    }

    #[test]
    fn an_error_shows_one_short_line_without_secrets() {
        assert_eq!(sanitize_for_error("a\n\tb  c"), "a b c");
        assert_eq!(
            sanitize_for_error("Incorrect API key provided: sk-proj-abcdefgh1234."),
            "Incorrect API key provided: [removed]"
        );
        assert_eq!(sanitize_for_error(r#"{"key":"sk-proj-abcdefgh1234"}"#), "[removed]");
        assert_eq!(sanitize_for_error(&"é".repeat(2000)).chars().count(), ERROR_TEXT_CHARS_MAX + 1);
    }
}
