//! Secrets of a turn: resolved for each turn, and redacted everywhere else. Services quote keys in their error messages.

use memchr::memmem::Finder;
use model::limits::SECRET_CHARS_MIN;
use model::ports::BoxFuture;
use serde_json::Value;
use std::sync::Arc;

const REDACTED: &str = "[removed]";
/// Long enough not to occur by chance. A shorter secret (`test-key`) may be a word of the response, so it is redacted
/// only in errors.
const LONG_SECRET_BYTES: usize = 16;

/// Resolves the secret references of a text (`env:NAME`, `file:PATH`, or either in braces). The error quotes no secret.
pub type SecretResolver = Arc<dyn Fn(String) -> BoxFuture<'static, Result<ResolvedText, String>> + Send + Sync>;

/// A text with its secret references resolved. It has no `Debug`: it holds the values.
#[derive(Clone, PartialEq, Eq)]
pub struct ResolvedText {
    /// With the values in place of the references.
    pub text: String,
    pub secret_values: Vec<String>,
}

#[derive(Default)]
pub(super) struct TurnSecrets {
    /// Each as it is and JSON-escaped, the longest first, because one may be part of another.
    values: Vec<String>,
    /// Search for the long ones of `values`, in the same order. Prepared, because every event is searched.
    long_values: Vec<Finder<'static>>,
}

impl TurnSecrets {
    pub(super) fn add_values(&mut self, values: Vec<String>) {
        for value in values.into_iter().filter(|value| value.chars().count() >= SECRET_CHARS_MIN) {
            let quoted = Value::from(value.as_str()).to_string();
            self.values.push(quoted.trim_matches('"').to_owned());
            self.values.push(value);
        }
        self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        self.values.dedup();
        let long_values = self.values.iter().filter(|value| value.len() >= LONG_SECRET_BYTES);
        self.long_values = long_values.map(|value| Finder::new(value).into_owned()).collect();
    }

    pub(super) fn redact(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, value| text.replace(value, REDACTED))
    }

    pub(super) fn redact_long_values(&self, text: &mut String) {
        if self.long_values.iter().any(|value| value.find(text.as_bytes()).is_some()) {
            for value in self.values.iter().filter(|value| value.len() >= LONG_SECRET_BYTES) {
                *text = text.replace(value, REDACTED);
            }
        }
    }

    pub(super) fn redact_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact(text),
            Value::Array(list) => list.iter_mut().for_each(|value| self.redact_json(value)),
            Value::Object(members) => members.values_mut().for_each(|value| self.redact_json(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_secret_is_redacted_longest_first_also_in_json_encoding() {
        let mut secrets = TurnSecrets::default();
        secrets.add_values(["abcd-efg", "", "e", "abcd-efg\"def"].map(str::to_owned).to_vec());
        let redacted = secrets.redact(r#"the abcd-efg, abcd-efg"def and abcd-efg\"def."#);
        assert_eq!(redacted, "the [removed], [removed] and [removed].", "a short one is part of other words");
        let mut value = json!({"a": ["x abcd-efg"], "n": 1});
        secrets.redact_json(&mut value);
        assert_eq!(value, json!({"a": ["x [removed]"], "n": 1}));
    }

    #[test]
    fn a_short_key_is_not_redacted_from_responses() {
        let mut secrets = TurnSecrets::default();
        secrets.add_values(vec!["test-key".to_owned(), "0123456789abcdef".to_owned()]);
        let mut said = "a test-key with 0123456789abcdef".to_owned();
        secrets.redact_long_values(&mut said);
        assert_eq!(said, "a test-key with [removed]");
    }
}
