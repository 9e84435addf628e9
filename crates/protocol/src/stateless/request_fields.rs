//! The fields of a request: absent and `null` are the same, and what is there has to be what it says.

use crate::client_input::InvalidField;
use model::content::{ContentPart, FileRef, ImageUrl};
use model::json::JsonObject;
use serde_json::Value;

/// A field that is neither missing nor `null`.
pub(crate) fn non_null_field<'a>(fields: &'a JsonObject, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

/// A text.
pub(crate) fn optional_str<'a>(fields: &'a JsonObject, name: &str, at: &str) -> Result<Option<&'a str>, InvalidField> {
    typed_field(fields, name, at, "expected a text", Value::as_str)
}

/// A text that must be there, and say something.
pub(crate) fn required_str<'a>(fields: &'a JsonObject, name: &str, at: &str) -> Result<&'a str, InvalidField> {
    let text = optional_str(fields, name, at)?.filter(|text| !text.is_empty());
    text.ok_or_else(|| InvalidField::new(field_path(at, name), "expected a text that is not empty"))
}

/// True or false.
pub(crate) fn optional_bool(fields: &JsonObject, name: &str, at: &str) -> Result<Option<bool>, InvalidField> {
    typed_field(fields, name, at, "expected true or false", Value::as_bool)
}

/// A number of things.
pub(crate) fn optional_positive(fields: &JsonObject, name: &str) -> Result<Option<u64>, InvalidField> {
    let positive = |value: &Value| value.as_u64().filter(|number| *number > 0);
    typed_field(fields, name, "", "expected a whole number from 1 on", positive)
}

/// A number from 0 to `max`.
pub(crate) fn optional_number(fields: &JsonObject, name: &str, max: f64) -> Result<Option<f64>, InvalidField> {
    let expected = format!("expected a number from 0 to {max}");
    typed_field(fields, name, "", &expected, |value| value.as_f64().filter(|number| (0.0..=max).contains(number)))
}

/// A list; empty when it is missing.
pub(crate) fn list_or_empty<'a>(fields: &'a JsonObject, name: &str, at: &str) -> Result<&'a [Value], InvalidField> {
    let list = typed_field(fields, name, at, "expected a list", Value::as_array)?;
    Ok(list.map_or(&[][..], Vec::as_slice))
}

/// An object.
pub(crate) fn optional_object<'a>(
    fields: &'a JsonObject,
    name: &str,
    at: &str,
) -> Result<Option<&'a JsonObject>, InvalidField> {
    typed_field(fields, name, at, "expected an object", Value::as_object)
}

/// An element of a list that has to be an object.
pub(crate) fn expect_object<'a>(value: &'a Value, at: &str) -> Result<&'a JsonObject, InvalidField> {
    value.as_object().ok_or_else(|| InvalidField::new(at, "expected an object"))
}

/// A picture by its address.
pub(crate) fn image_part(url: impl Into<String>, at: &str) -> Result<ContentPart, InvalidField> {
    let image_url = ImageUrl::parse(url.into()).map_err(|error| InvalidField::new(at, error.to_string()))?;
    Ok(ContentPart::ImageUrl { image_url, id: None })
}

/// A file by its address, and what people call it.
pub(crate) fn file_part(url: impl Into<String>, name: Option<&str>) -> ContentPart {
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    ContentPart::File { file: FileRef { url: Some(url.into()), name, ..FileRef::default() } }
}

/// A field's name, with what it stands in.
pub(crate) fn field_path(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

fn typed_field<'a, T>(
    fields: &'a JsonObject,
    name: &str,
    at: &str,
    expected: &str,
    fits: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, InvalidField> {
    non_null_field(fields, name)
        .map(|value| fits(value).ok_or_else(|| InvalidField::new(field_path(at, name), expected)))
        .transpose()
}
