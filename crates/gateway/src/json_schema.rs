//! JSON Schemas of tool arguments.

use schema::{SchemaCache, ToolSchema};
use serde_json::Value;
use std::sync::Arc;

/// Checks that `schema` is the JSON Schema of an object, and within the bounds of the crate `schema`.
pub fn check_object_schema(schema: &Value) -> Result<(), String> {
    compile_object_schema(&SchemaCache::default(), schema).map(drop)
}

/// The same; a run finds the schema compiled.
pub(crate) fn compile_object_schema(schemas: &SchemaCache, schema: &Value) -> Result<Arc<ToolSchema>, String> {
    if !schema.is_object() || schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("arguments are always an object: write a schema of `\"type\": \"object\"`".to_owned());
    }
    schemas.compile(schema).map_err(|error| error.to_string())
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
}
