//! JSON from outside: read leniently, looked into without fear.

use serde_json::Value;
use std::borrow::Cow;

/// How much of a text is shown in an error.
const SHOWN_CHARS_MAX: usize = 500;
/// A beginning that only secrets have.
const SECRET_PREFIXES: [&str; 6] = ["sk-", "sk_", "key-", "AIza", "Bearer", "eyJ"];

/// Reads an event's data. Text that is JSON but for lone surrogates, raw control characters or numbers beyond measure is
/// mended and read again: one bad character is no reason to lose a turn.
pub(crate) fn read(data: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(data).or_else(|error| serde_json::from_str(&mended(data)).map_err(|_| error))
}

/// The text with what a JSON reader refuses replaced: in strings, lone surrogates by U+FFFD and raw control characters
/// by their escapes; outside, numbers that no machine has (`NaN`, `-Infinity`, `1e999`) by `null`.
fn mended(data: &str) -> String {
    let mut out = String::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.find('"') {
        let (outside, string) = rest.split_at(at);
        numbers(outside, &mut out);
        rest = quoted(string, &mut out);
    }
    numbers(rest, &mut out);
    out
}

/// Takes a string off the text, its quotes included, and gives what follows.
fn quoted<'a>(text: &'a str, out: &mut String) -> &'a str {
    let mut chars = text.char_indices();
    out.extend(chars.next().map(|(_, quote)| quote));
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                out.push(c);
                break;
            }
            '\\' if text.get(at..).is_some_and(|text| text.starts_with("\\u")) => {
                let (escape, length) = unicode(text.get(at..).unwrap_or_default());
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

/// The `\u` escape that the text begins with, and how long it is: a pair of surrogates is one, half a pair is U+FFFD.
fn unicode(text: &str) -> (Cow<'_, str>, usize) {
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

/// Copies what stands between strings, without numbers that cannot be read.
fn numbers(text: &str, out: &mut String) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let mut rest = text;
    while let Some(at) = rest.find(is_word) {
        let (before, tail) = rest.split_at(at);
        let (word, after) = tail.split_at(tail.find(|c| !is_word(c)).unwrap_or(tail.len()));
        out.push_str(before);
        let beyond = word.parse::<f64>().is_ok_and(|number| !number.is_finite());
        out.push_str(if beyond { "null" } else { word });
        rest = after;
    }
    out.push_str(rest);
}

/// A string field.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// A string field, taken out rather than copied.
pub(crate) fn take_text(value: &mut Value, key: &str) -> Option<String> {
    match value.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// A field that is neither missing nor `null`, taken out rather than copied.
pub(crate) fn take(value: &mut Value, key: &str) -> Option<Value> {
    value.get_mut(key).map(Value::take).filter(|value| !value.is_null())
}

/// A field that is neither missing nor `null`.
pub(crate) fn present<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}

/// An index. What is none is nothing.
pub(crate) fn index(value: &Value, key: &str) -> Option<u32> {
    value.get(key).and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok())
}

/// A list; empty when it is none.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// How many tokens: nonsense counts nothing, a fraction is cut, too many are as many as there can be.
pub(crate) fn count(value: &Value, key: &str) -> u64 {
    let Some(Value::Number(number)) = value.get(key) else { return 0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from a float, the cast saturates")]
    let from_float = || number.as_f64().unwrap_or_default() as u64;
    number.as_u64().unwrap_or_else(from_float)
}

/// A text from outside as an error may show it: one line, not too long, without anything that looks like a secret.
pub(crate) fn shown(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if line.chars().count() > SHOWN_CHARS_MAX {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(if is_secret(word) { "[removed]" } else { word });
    }
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Long enough to be a key, and it begins like one, perhaps behind a quote or an equals sign.
fn is_secret(word: &str) -> bool {
    let begins = |word: &str| SECRET_PREFIXES.iter().any(|prefix| word.starts_with(prefix) && word.len() > 12);
    word.split(['"', '\'', '`', '=', ':', '(', '[', '{', ',']).any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn half_a_surrogate_pair_does_not_lose_the_event() {
        assert_eq!(read(r#"{"a":"x\ud800y","b":"\uDE00"}"#).unwrap(), json!({"a": "x\u{fffd}y", "b": "\u{fffd}"}));
        assert_eq!(read(r#"{"a":"\ud83d\ude00\ud83d"}"#).unwrap(), json!({"a": "😀\u{fffd}"}));
        assert_eq!(read(r#"{"a":"\ud83d\ud83d\ude00"}"#).unwrap(), json!({"a": "\u{fffd}😀"}));
        assert_eq!(read(r#"{"a":"\\ud800 \ud800"}"#).unwrap(), json!({"a": "\\ud800 \u{fffd}"}));
    }

    #[test]
    fn raw_control_characters_and_numbers_beyond_measure_are_mended() {
        assert_eq!(read("{\"a\":\"x\ty\0z\"}").unwrap(), json!({"a": "x\ty\0z"}));
        let odd = r#"{"a":[NaN,-Infinity,1e999,-12.5],"NaN":"NaN, 1e999","b":true}"#;
        assert_eq!(read(odd).unwrap(), json!({"a": [null, null, null, -12.5], "NaN": "NaN, 1e999", "b": true}));
    }

    #[test]
    fn what_is_not_json_stays_an_error() {
        for data in ["", "{", "{\"a\":\"\\u", "{\"a\":\"\\ud8", "nonsense", "<html>\"", "\"é\\u00é\"x"] {
            assert!(read(data).is_err(), "{data}");
        }
    }

    #[test]
    fn token_counts_are_sane_whatever_is_said() {
        let told = json!({"a": -3, "b": 2.9, "c": null, "d": "7", "e": u64::MAX, "f": 1e300, "g": 12});
        let counts = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|key| count(&told, key));
        assert_eq!(counts, [0, 2, 0, 0, u64::MAX, u64::MAX, 12, 0]);
    }

    #[test]
    fn an_error_shows_one_short_line_without_secrets() {
        assert_eq!(shown("a\n\tb  c"), "a b c");
        assert_eq!(shown("Incorrect API key provided: sk-proj-abcdefgh1234."), "Incorrect API key provided: [removed]");
        assert_eq!(shown(r#"{"key":"sk-proj-abcdefgh1234"}"#), "[removed]");
        assert_eq!(shown(&"é".repeat(2000)).chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
