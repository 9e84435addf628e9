//! Fields of request bodies: absent and `null` are the same, and a field that is present has to have its type.
//!
//! [`SamplingFields`] has the names of the sampling parameters in each protocol.

use crate::client_input::InvalidField;
use model::content::{ContentPart, FileRef, ImageUrl};
use model::json::JsonObject;
use model::model_settings::{ModelSettings, ToolChoice};
use serde_json::Value;

/// The names of the sampling parameters in one protocol. `temperature` and `top_p` have the same name in all.
pub(crate) struct SamplingFields {
    /// The first that is present is used.
    max_output_tokens: &'static [&'static str],
    stop: StopField,
}

enum StopField {
    Unsupported,
    List(&'static str),
    TextOrList(&'static str),
}

impl SamplingFields {
    pub(crate) const RESPONSES: Self = Self { max_output_tokens: &["max_output_tokens"], stop: StopField::Unsupported };
    pub(crate) const MESSAGES: Self =
        Self { max_output_tokens: &["max_tokens"], stop: StopField::List("stop_sequences") };
    pub(crate) const CHAT: Self =
        Self { max_output_tokens: &["max_completion_tokens", "max_tokens"], stop: StopField::TextOrList("stop") };

    /// Model settings that have the sampling parameters of a request and nothing else.
    pub(crate) fn parse(&self, body: &JsonObject) -> Result<ModelSettings, InvalidField> {
        let mut max_output_tokens = None;
        for name in self.max_output_tokens {
            max_output_tokens = max_output_tokens.or(optional_positive(body, name)?);
        }
        Ok(ModelSettings {
            max_output_tokens,
            temperature: optional_number(body, "temperature", 2.0)?,
            top_p: optional_number(body, "top_p", 1.0)?,
            stop: self.parse_stop(body)?,
            ..ModelSettings::default()
        })
    }

    fn parse_stop(&self, body: &JsonObject) -> Result<Vec<String>, InvalidField> {
        let (name, expected) = match self.stop {
            StopField::Unsupported => return Ok(Vec::new()),
            StopField::List(name) => (name, "expected a list of texts"),
            StopField::TextOrList(name) => (name, "expected a text or a list of texts"),
        };
        let texts = match (non_null_field(body, name), &self.stop) {
            (None, _) => Some(Vec::new()),
            (Some(Value::String(text)), StopField::TextOrList(_)) => Some(vec![text.clone()]),
            (Some(Value::Array(texts)), _) => texts.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
            (Some(_), _) => None,
        };
        texts.ok_or_else(|| InvalidField::new(name, expected))
    }
}

/// The modes of `tool_choice` that Responses and Chat Completions share.
pub(crate) fn parse_tool_choice_mode(mode: Option<&str>) -> Option<ToolChoice> {
    match mode? {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" => Some(ToolChoice::Required),
        _ => None,
    }
}

/// The parameters of a tool that declares none.
pub(crate) fn any_object_schema() -> Value {
    JsonObject::from_iter([("type".to_owned(), "object".into())]).into()
}

/// A field that is neither missing nor `null`.
pub(crate) fn non_null_field<'a>(fields: &'a JsonObject, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

pub(crate) fn optional_str<'a>(fields: &'a JsonObject, name: &str, at: &str) -> Result<Option<&'a str>, InvalidField> {
    typed_field(fields, name, at, "expected a text", Value::as_str)
}

/// A text that may be empty.
pub(crate) fn present_str<'a>(fields: &'a JsonObject, name: &str, at: &str) -> Result<&'a str, InvalidField> {
    optional_str(fields, name, at)?.ok_or_else(|| InvalidField::new(field_path(at, name), "expected a text"))
}

/// A text that is not empty.
pub(crate) fn required_str<'a>(fields: &'a JsonObject, name: &str, at: &str) -> Result<&'a str, InvalidField> {
    let text = optional_str(fields, name, at)?.filter(|text| !text.is_empty());
    text.ok_or_else(|| InvalidField::new(field_path(at, name), "expected a text that is not empty"))
}

pub(crate) fn optional_bool(fields: &JsonObject, name: &str, at: &str) -> Result<Option<bool>, InvalidField> {
    typed_field(fields, name, at, "expected true or false", Value::as_bool)
}

pub(crate) fn optional_positive(fields: &JsonObject, name: &str) -> Result<Option<u64>, InvalidField> {
    let positive = |value: &Value| value.as_u64().filter(|number| *number > 0);
    typed_field(fields, name, "", "expected a whole number from 1 on", positive)
}

/// A whole number from 0 to `max`.
pub(crate) fn optional_up_to(fields: &JsonObject, name: &str, max: u64) -> Result<Option<u64>, InvalidField> {
    let expected = format!("expected a whole number from 0 to {max}");
    typed_field(fields, name, "", &expected, |value| value.as_u64().filter(|number| *number <= max))
}

/// A number from 0 to `max`.
fn optional_number(fields: &JsonObject, name: &str, max: f64) -> Result<Option<f64>, InvalidField> {
    let expected = format!("expected a number from 0 to {max}");
    typed_field(fields, name, "", &expected, |value| value.as_f64().filter(|number| (0.0..=max).contains(number)))
}

pub(crate) fn list_or_empty<'a>(fields: &'a JsonObject, name: &str, at: &str) -> Result<&'a [Value], InvalidField> {
    let list = typed_field(fields, name, at, "expected a list", Value::as_array)?;
    Ok(list.map_or(&[][..], Vec::as_slice))
}

pub(crate) fn optional_object<'a>(
    fields: &'a JsonObject,
    name: &str,
    at: &str,
) -> Result<Option<&'a JsonObject>, InvalidField> {
    typed_field(fields, name, at, "expected an object", Value::as_object)
}

pub(crate) fn required_object<'a>(
    fields: &'a JsonObject,
    name: &str,
    at: &str,
) -> Result<&'a JsonObject, InvalidField> {
    let object = optional_object(fields, name, at)?;
    object.ok_or_else(|| InvalidField::new(field_path(at, name), "expected an object"))
}

/// An element of a list that has to be an object.
pub(crate) fn expect_object<'a>(value: &'a Value, at: &str) -> Result<&'a JsonObject, InvalidField> {
    value.as_object().ok_or_else(|| InvalidField::new(at, "expected an object"))
}

pub(crate) fn image_part(url: impl Into<String>, at: &str) -> Result<ContentPart, InvalidField> {
    let image_url = ImageUrl::parse(url.into()).map_err(|error| InvalidField::new(at, error.to_string()))?;
    Ok(ContentPart::ImageUrl { image_url, id: None })
}

pub(crate) fn file_part(url: impl Into<String>, name: Option<&str>) -> ContentPart {
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    ContentPart::File { file: FileRef { url: Some(url.into()), name, ..FileRef::default() } }
}

/// The path of a field inside `at`.
pub(crate) fn field_path(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

fn typed_field<'a, T>(
    fields: &'a JsonObject,
    name: &str,
    at: &str,
    expected: &str,
    convert: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, InvalidField> {
    non_null_field(fields, name)
        .map(|value| convert(value).ok_or_else(|| InvalidField::new(field_path(at, name), expected)))
        .transpose()
}
