//! Headers that repeat parts of a request, so that what stands between client and server can route it unread
//! (2026-07-28): the method, the name of what is asked for, and arguments that a tool's schema marks with `x-mcp-header`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use std::collections::HashSet;

const ANNOTATION: &str = "x-mcp-header";
const PARAM_PREFIX: &str = "Mcp-Param-";
/// Properties within properties that are looked at.
const DEPTH_MAX: usize = 16;

/// Headers that a tool's schema asks for, besides those of every request. Travels with the request.
#[derive(Clone)]
pub(crate) struct ArgumentHeaders(pub(crate) Vec<(String, String)>);

impl ArgumentHeaders {
    /// None for arguments that are not JSON, which the server is left to refuse.
    pub(crate) fn new(parameters: &Value, arguments: &str) -> Self {
        let arguments = serde_json::from_str(arguments).unwrap_or_default();
        Self(argument_headers(parameters, &arguments))
    }
}

/// The headers of the arguments that a schema marks.
fn argument_headers(schema: &Value, arguments: &Value) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    visit_properties(schema, 0, &mut Vec::new(), &mut |path, property| {
        let Some(name) = property.get(ANNOTATION).and_then(Value::as_str) else { return };
        let value = path.iter().try_fold(arguments, |value, key| value.get(key));
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => return,
        };
        headers.push((format!("{PARAM_PREFIX}{name}"), header_value(&text)));
    });
    headers
}

/// Says why the marks of a schema cannot be used. The protocol has such a tool rejected: what routes its calls would read
/// something else than the server.
pub(crate) fn check_annotations(schema: &Value) -> Result<(), String> {
    let (mut names, mut marked, mut problem) = (HashSet::new(), 0_usize, None);
    visit_properties(schema, 0, &mut Vec::new(), &mut |path, property| {
        let Some(name) = property.get(ANNOTATION) else { return };
        marked += 1;
        let is_token = |name: &&str| !name.is_empty() && name.bytes().all(is_token_byte);
        let found = match name.as_str().filter(is_token) {
            None => Some("is not the name of a header"),
            Some(name) if !names.insert(name.to_ascii_lowercase()) => Some("is there twice"),
            Some(_) => match property.get("type").and_then(Value::as_str) {
                Some("string" | "integer" | "boolean") => None,
                _ => Some("marks something else than a string, an integer or a boolean"),
            },
        };
        if let Some(found) = found {
            problem.get_or_insert(format!("the {ANNOTATION} of `{}` {found}", path.join(".")));
        }
    });
    match problem {
        Some(problem) => Err(problem),
        None if count_annotations(schema) > marked => {
            Err(format!("an {ANNOTATION} marks something else than a property"))
        }
        None => Ok(()),
    }
}

/// The headers of every request.
pub(crate) fn request_headers(method: &str, params: Option<&Value>) -> Vec<(String, String)> {
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => "",
    };
    let name = params.and_then(|params| params.get(key)?.as_str());
    let name = name.map(|name| ("Mcp-Name".to_owned(), header_value(name)));
    [("Mcp-Method".to_owned(), method.to_owned())].into_iter().chain(name).collect()
}

/// Gets the path to a property, and its schema.
type PropertyVisitor<'a, 'b> = dyn FnMut(&[&str], &'a Map<String, Value>) + 'b;

/// Every property that is reached through `properties` alone, with the path to its value.
fn visit_properties<'a>(schema: &'a Value, depth: usize, path: &mut Vec<&'a str>, visit: &mut PropertyVisitor<'a, '_>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        path.push(name);
        if let Some(members) = property.as_object() {
            visit(path, members);
        }
        if depth < DEPTH_MAX {
            visit_properties(property, depth + 1, path, visit);
        }
        path.pop();
    }
}

/// All annotations of a schema. Values of the data that it describes are none.
fn count_annotations(schema: &Value) -> usize {
    const NAMED_SCHEMAS: [&str; 5] = ["properties", "$defs", "definitions", "dependentSchemas", "patternProperties"];
    match schema {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| match (key.as_str(), value) {
                (ANNOTATION, _) => 1,
                ("default" | "const" | "enum" | "examples", _) => 0,
                (key, Value::Object(named)) if NAMED_SCHEMAS.contains(&key) => {
                    named.values().map(count_annotations).sum()
                }
                (_, value) => count_annotations(value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_annotations).sum(),
        _ => 0,
    }
}

/// The bytes of a token, as HTTP defines it.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A text that cannot be the value of a header as it is, is encoded.
fn header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_matches([' ', '\t']) == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn marked_arguments_become_headers() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "place": {"type": "object", "properties": {"zip": {"type": "integer", "x-mcp-header": "Zip"}}},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "free": {"type": "string"},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
        }});
        assert_eq!(check_annotations(&schema), Ok(()));
        let arguments = json!({"region": " Zürich", "place": {"zip": 8001}, "dry": true, "free": "x"});
        let mut headers = argument_headers(&schema, &arguments);
        headers.sort();
        let wanted =
            [("Mcp-Param-Dry", "true"), ("Mcp-Param-Region", "=?base64?IFrDvHJpY2g=?="), ("Mcp-Param-Zip", "8001")];
        assert_eq!(headers, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn marks_that_cannot_be_headers_are_reported() {
        let of = |property: Value| json!({"type": "object", "properties": {"a": property}});
        let bad = [
            of(json!({"type": "string", "x-mcp-header": ""})),
            of(json!({"type": "string", "x-mcp-header": 7})),
            of(json!({"type": "string", "x-mcp-header": "a b"})),
            of(json!({"type": "string", "x-mcp-header": "a\r\nX: y"})),
            of(json!({"type": "number", "x-mcp-header": "A"})),
            of(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
            json!({"type": "object", "x-mcp-header": "A"}),
            json!({"type": "object", "properties": {
                "a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"},
            }}),
        ];
        for schema in bad {
            assert!(check_annotations(&schema).is_err(), "{schema}");
        }
        assert_eq!(check_annotations(&of(json!({"type": "string", "default": {"x-mcp-header": "A"}}))), Ok(()));
    }

    #[test]
    fn requests_say_their_method_and_the_name_of_what_they_ask_for() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(request_headers("tools/list", None), [pair("Mcp-Method", "tools/list")]);
        let named = request_headers("tools/call", Some(&json!({"name": "=?base64?x?="})));
        assert_eq!(named, [pair("Mcp-Method", "tools/call"), pair("Mcp-Name", "=?base64?PT9iYXNlNjQ/eD89?=")]);
    }
}
