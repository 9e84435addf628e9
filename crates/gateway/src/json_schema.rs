//! JSON Schemas of tool arguments.

use serde_json::Value;

/// Number of validation errors that are reported at once.
const ERRORS_MAX: usize = 5;
/// Length of one validation error, which repeats the value at fault.
const ERROR_CHARS_MAX: usize = 200;

/// Checks that `schema` is the JSON Schema of an object.
pub fn check_object_schema(schema: &Value) -> Result<(), String> {
    if !schema.is_object() || schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("arguments are always an object: write a schema of `\"type\": \"object\"`".to_owned());
    }
    match jsonschema::validator_for(schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("not a JSON Schema: {}", error_text(&error))),
    }
}

/// Validates arguments. An invalid schema allows everything.
pub fn validate_arguments(schema: &Value, arguments: &Value) -> Result<(), String> {
    let Ok(schema) = jsonschema::validator_for(schema) else { return Ok(()) };
    let errors: Vec<String> = schema.iter_errors(arguments).take(ERRORS_MAX).map(|error| error_text(&error)).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

fn error_text(error: &jsonschema::ValidationError<'_>) -> String {
    let text = format!("{} {error}", error.instance_path());
    text.trim().chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_need_an_object_schema() {
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
    fn validation_errors_are_short() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        assert_eq!(validate_arguments(&schema, &json!({"n": 1})), Ok(()));
        assert!(validate_arguments(&schema, &json!({})).unwrap_err().contains("\"n\""));
        let long = validate_arguments(&schema, &json!({"n": "x".repeat(10_000)})).unwrap_err();
        assert!(long.starts_with("/n ") && long.len() < 1_000, "{long}");
    }
}
