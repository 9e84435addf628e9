//! A text that its copies share.

use crate::json::{SharedJson, escape_text};
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A text that may be long: copies share it, and so do the objects and frames that repeat it. It is changed in place as long
/// as there is one copy.
#[derive(Clone, Default)]
pub struct SharedText(Arc<EscapedText>);

#[derive(Clone, Default)]
struct EscapedText {
    text: String,
    /// The text with the escapes of JSON, once it was needed; `None` if it has none.
    escaped: OnceLock<Option<Bytes>>,
}

impl SharedText {
    /// The text, to be changed.
    pub fn make_mut(&mut self) -> &mut String {
        let EscapedText { text, escaped } = Arc::make_mut(&mut self.0);
        escaped.take();
        text
    }

    /// The text as a piece of JSON that refers to it. Escapes are written once.
    pub fn to_json(&self) -> SharedJson {
        let source = Bytes::from_owner(self.clone());
        match self.0.escaped.get_or_init(|| escape_text(self)) {
            Some(escaped) => SharedJson { source, json: escaped.clone() },
            None => SharedJson::from(source),
        }
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(Arc::new(EscapedText { text, escaped: OnceLock::new() }))
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for SharedText {
    fn inline_schema() -> bool {
        String::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_the_text_until_one_is_changed() {
        let mut text = SharedText::from("a text");
        text.make_mut().push('!');
        let copy = text.clone();
        assert_eq!(text.as_ptr(), copy.as_ptr());
        text.make_mut().push('?');
        assert_eq!((&*text, &*copy), ("a text!?", "a text!"));
    }

    #[test]
    fn its_json_is_written_once_and_follows_a_change() {
        let mut text = SharedText::from("plain");
        assert_eq!(text.to_json().json.as_ptr(), text.as_ptr());
        text.make_mut().push_str(" \"\n");
        let json = text.to_json();
        assert_eq!((&json.source[..], &json.json[..]), (&b"plain \"\n"[..], &br#"plain \"\n"#[..]));
        assert_eq!(json.json.as_ptr(), text.clone().to_json().json.as_ptr());
        text.make_mut().push('\\');
        assert_eq!(text.to_json().json, r#"plain \"\n\\"#);
        assert_eq!(json.json, r#"plain \"\n"#);
    }
}
