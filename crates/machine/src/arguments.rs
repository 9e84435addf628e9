//! Validates arguments before a tool runs.

use model::definition::ToolSpec;
use model::error::ErrorCode;
use model::json::{JsonObject, reject_duplicate_keys};
use model::limits::RECORD_BYTES_MAX;
use model::tool::ToolOutput;

/// The record that starts the tool has to hold the arguments, where JSON escapes may double them.
const ARGUMENTS_BYTES_MAX: usize = RECORD_BYTES_MAX * 3 / 8;
const SCHEMA_ERRORS_MAX: usize = 5;

/// Checks arguments against the schema of a tool. The error is the result for the model.
pub(crate) fn validate_arguments(spec: &ToolSpec, arguments: &str) -> Result<(), Box<ToolOutput>> {
    if arguments.len() > ARGUMENTS_BYTES_MAX {
        return Err(invalid_arguments(&spec.name, &format!("they have more than {ARGUMENTS_BYTES_MAX} bytes")));
    }
    let Ok(object) = serde_json::from_str::<JsonObject>(arguments) else {
        return Err(invalid_arguments(&spec.name, "they are not a JSON object"));
    };
    // Of two equal keys an approval rule might read one, and the tool the other.
    if let Err(error) = reject_duplicate_keys(arguments) {
        return Err(invalid_arguments(&spec.name, &error.to_string()));
    }
    // Invalid schemas are refused where they are declared; one that slips through allows everything.
    let Ok(schema) = jsonschema::validator_for(&spec.parameters) else { return Ok(()) };
    let object = serde_json::Value::Object(object);
    let errors: Vec<String> = schema
        .iter_errors(&object)
        .take(SCHEMA_ERRORS_MAX)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(invalid_arguments(&spec.name, &errors.join("; "))) }
}

fn invalid_arguments(name: &str, why: &str) -> Box<ToolOutput> {
    let message = format!("The arguments of `{name}` cannot be used: {why}. Nothing was run; call it again.");
    Box::new(ToolOutput::failed(ErrorCode::InvalidArguments, message))
}
