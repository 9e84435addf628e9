//! JSON Schemas of tools' arguments: whether something is one, and whether arguments fit it.

use serde_json::Value;

/// How many complaints somebody is given at once.
const ERRORS_MAX: usize = 5;
/// And how long each of them may be: a complaint repeats what it complains of.
const ERROR_CHARS_MAX: usize = 200;

/// Is this the JSON Schema of an object? If not, why not.
pub(crate) fn check_object_schema(schema: &Value) -> Result<(), String> {
    if !schema.is_object() || schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("arguments are always an object: write a schema of `\"type\": \"object\"`".to_owned());
    }
    match jsonschema::validator_for(schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("not a JSON Schema: {}", error_text(&error))),
    }
}

/// Do the arguments fit? If not, what is wrong with them. A schema that is none forbids nothing.
pub(crate) fn validate_arguments(schema: &Value, arguments: &Value) -> Result<(), String> {
    let Ok(schema) = jsonschema::validator_for(schema) else { return Ok(()) };
    let complaints: Vec<String> =
        schema.iter_errors(arguments).take(ERRORS_MAX).map(|error| error_text(&error)).collect();
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
}

fn error_text(error: &jsonschema::ValidationError<'_>) -> String {
    let words = format!("{} {error}", error.instance_path());
    words.trim().chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_schema_of_an_object_declares_arguments() {
        for good in [json!({}), json!({"type": "object"}), json!({"type": "object", "properties": {"a": true}})] {
            assert_eq!(check_object_schema(&good), Ok(()), "{good}");
        }
        for bad in [
            json!(true),
            json!("object"),
            json!({"type": "string"}),
            json!({"type": "object", "properties": []}),
            json!({"type": "object", "required": "a"}),
            json!({"properties": {"a": {"type": "sting"}}}),
            json!({"properties": {"a": {"$ref": "https://example.org/not-fetched.json"}}}),
        ] {
            assert!(check_object_schema(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said_and_not_at_length() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        assert_eq!(validate_arguments(&schema, &json!({"n": 1})), Ok(()));
        assert!(validate_arguments(&schema, &json!({})).unwrap_err().contains("\"n\""));
        let long = validate_arguments(&schema, &json!({"n": "x".repeat(10_000)})).unwrap_err();
        assert!(long.starts_with("/n ") && long.len() < 1_000, "{long}");
    }
}
