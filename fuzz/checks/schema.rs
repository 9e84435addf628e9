//! The check of the fuzz target `tool_schema`: any schema is refused or compiles, and any arguments are judged, the same
//! way each time. libFuzzer ends an input that takes too long.
//!
//! The input is a schema, a line feed and the arguments.

use schema::{SchemaCache, ToolSchema};
use serde_json::Value;

pub(crate) fn a_schema_judges_any_arguments(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (schema, arguments) = text.split_once('\n').unwrap_or((text, "{}"));
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let arguments = serde_json::from_str::<Value>(arguments).unwrap_or_default();
    let direct = ToolSchema::compile(&schema);
    let cached = SchemaCache::default().validate(&schema, &arguments);
    match direct {
        Ok(compiled) => assert_eq!(compiled.validate(&arguments), cached, "{schema}"),
        Err(error) => {
            assert!(cached.is_err(), "{schema}");
            assert!(error.to_string().len() < 4_096, "{error}");
        }
    }
}
