//! The arguments of a call. Each value keeps its source text: parsing and printing a number again may change it.

use model::error::{ErrorCode, ErrorInfo};
use model::json::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write;

pub(crate) struct RawArguments(BTreeMap<String, Box<RawValue>>);

impl RawArguments {
    pub(crate) fn parse(text: &str) -> Result<Self, ErrorInfo> {
        serde_json::from_str(text).map(Self).map_err(invalid_arguments)
    }

    /// The text of a string, or the source text of a number or boolean.
    pub(crate) fn scalar(&self, name: &str) -> Result<String, ErrorInfo> {
        let json = self.0.get(name).ok_or_else(|| invalid_arguments(format!("`{name}` is missing")))?.get();
        match json.as_bytes().first() {
            Some(b'"') => serde_json::from_str(json).map_err(invalid_arguments),
            Some(b'{' | b'[' | b'n') => {
                Err(invalid_arguments(format!("`{name}` must be a string, a number or a boolean")))
            }
            _ => Ok(json.to_owned()),
        }
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// One query pair for each argument that is not null; arrays and objects as JSON.
    pub(crate) fn query_pairs(&self) -> Vec<(String, String)> {
        let named = self.0.iter().filter(|(_, json)| json.get() != "null");
        named.map(|(name, json)| (name.clone(), self.scalar(name).unwrap_or_else(|_| json.get().to_owned()))).collect()
    }

    pub(crate) fn to_json(&self) -> String {
        let fields = self.0.iter().map(|(name, json)| format!("{}:{}", json_string(name), json.get()));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }

    /// Replaces each string that is exactly `{name}` by that argument. Members whose argument is missing are omitted.
    pub(crate) fn fill_template(&self, template: &Value) -> String {
        let mut out = String::new();
        if !self.write_value(template, &mut out) {
            out.push_str("null");
        }
        out
    }

    /// Returns whether anything was written: a placeholder without its argument writes nothing.
    fn write_value(&self, template: &Value, out: &mut String) -> bool {
        match template {
            Value::String(text) => match placeholder_name(text) {
                Some(name) => match self.0.get(name) {
                    Some(json) => out.push_str(json.get()),
                    None => return false,
                },
                None => out.push_str(&json_string(text)),
            },
            Value::Array(items) => {
                out.push('[');
                for item in items {
                    self.write_element("", item, out);
                }
                out.push(']');
            }
            Value::Object(fields) => {
                out.push('{');
                for (name, field) in fields {
                    self.write_element(&format!("{}:", json_string(name)), field, out);
                }
                out.push('}');
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "{template}");
            }
        }
        true
    }

    /// Writes an array element or an object member, with its comma; an omitted one leaves neither.
    fn write_element(&self, name: &str, template: &Value, out: &mut String) {
        let before = out.len();
        // No value ends with an opening bracket, so one at the end belongs to the enclosing array or object.
        if !out.ends_with(['[', '{']) {
            out.push(',');
        }
        out.push_str(name);
        if !self.write_value(template, out) {
            out.truncate(before);
        }
    }
}

fn placeholder_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('{')?.strip_suffix('}')?;
    (!name.is_empty() && !name.contains(['{', '}'])).then_some(name)
}

fn json_string(text: &str) -> String {
    Value::from(text).to_string()
}

/// Parses the arguments of a builtin. Only an object will do: serde would also accept an array in the order of the fields.
pub(crate) fn parse_arguments<T: DeserializeOwned>(arguments: &str) -> Result<T, serde_json::Error> {
    let object: JsonObject = serde_json::from_str(arguments)?;
    serde_json::from_value(Value::Object(object))
}

/// The model reads the message and can call again.
pub(crate) fn invalid_arguments(why: impl std::fmt::Display) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::InvalidArguments, format!("invalid arguments: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments() -> RawArguments {
        RawArguments::parse(r#"{"n": 12345678901234567890123, "s": "a\"b", "o": {"x": [1, 2]}, "z": null, "t": true}"#)
            .unwrap()
    }

    #[test]
    fn the_default_body_has_the_kept_arguments_unchanged() {
        let mut arguments = arguments();
        arguments.retain(|name| !["s", "t"].contains(&name));
        assert_eq!(arguments.to_json(), r#"{"n":12345678901234567890123,"o":{"x": [1, 2]},"z":null}"#);
        assert_eq!(RawArguments::parse("{}").unwrap().to_json(), "{}");
    }

    #[test]
    fn a_template_inserts_values_and_omits_missing_ones() {
        let template = json!({
            "a": "{n}", "b": ["{nope}", "{s}", "{nope}", 1.5, null], "c": {"d": "{o}", "e": "{nope}"},
            "f": "x {s}", "g": "{}", "h": "{nope}", "i": "{z}", "j": "{{n}}", "k": [[], {}, "{t}"],
        });
        let wanted = concat!(
            r#"{"a":12345678901234567890123,"b":["a\"b",1.5,null],"c":{"d":{"x": [1, 2]}},"#,
            r#""f":"x {s}","g":"{}","i":null,"j":"{{n}}","k":[[],{},true]}"#
        );
        assert_eq!(arguments().fill_template(&template), wanted);
        assert_eq!(arguments().fill_template(&json!("{nope}")), "null");
        assert_eq!(arguments().fill_template(&json!("{o}")), r#"{"x": [1, 2]}"#);
    }

    #[test]
    fn a_query_has_pairs_and_nested_values_as_json() {
        let pairs = arguments().query_pairs();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("n", "12345678901234567890123"), ("o", r#"{"x": [1, 2]}"#), ("s", "a\"b"), ("t", "true")]);
    }

    #[test]
    fn non_objects_are_refused() {
        for text in ["", "[]", "3", "null", "{", "{} {}"] {
            let error = RawArguments::parse(text).err().unwrap();
            assert_eq!(error.code, "invalid_arguments", "{text}");
        }
    }
}
