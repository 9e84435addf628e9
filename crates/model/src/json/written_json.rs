//! JSON that is written once and repeated as it is.

use super::writer::{RAW_VALUE, write_json};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A value as JSON text. Like `serde_json`'s `RawValue`, which parses what it is made of.
#[derive(Debug)]
pub struct WrittenJson(String);

impl WrittenJson {
    /// Writes a value whose long texts have about this many bytes: a buffer that grew would copy them. `None` if the value
    /// cannot be written, as in [`write_json`].
    pub fn new(value: &impl Serialize, text_bytes: usize) -> Option<Self> {
        // Some for what is escaped, and for all that is not long.
        let mut out = Vec::with_capacity(text_bytes + text_bytes / 16 + 256);
        write_json(&mut out, value).ok()?;
        // It may be kept for as long as the run goes on.
        if out.capacity() - out.len() > out.len() / 8 {
            out.shrink_to_fit();
        }
        String::from_utf8(out).ok().map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for WrittenJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = serializer.serialize_struct(RAW_VALUE, 1)?;
        raw.serialize_field(RAW_VALUE, &self.0)?;
        raw.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_repeated_as_it_was_written() {
        let value = json!({"text": "a \"long\" text\n", "list": [1.5, null]});
        for text_bytes in [0, 1000] {
            let written = WrittenJson::new(&value, text_bytes).unwrap();
            assert_eq!(written.as_str(), value.to_string());
            let mut out = Vec::new();
            write_json(&mut out, &[&written, &written]).unwrap();
            assert_eq!(out, format!("[{value},{value}]").into_bytes());
            assert_eq!(serde_json::to_string(&written).unwrap(), value.to_string());
            assert_eq!(serde_json::to_value(&written).unwrap(), value);
        }
    }
}
