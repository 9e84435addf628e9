//! Validates arguments before a tool runs.

use model::definition::ToolSpec;
use model::error::ErrorCode;
use model::json::{ExactValue, JsonObject};
use model::limits::RECORD_BYTES_MAX;
use model::tool::ToolOutput;
use schema::{ArgumentsError, SchemaCache, SchemaError};

/// The record that starts the tool has to hold the arguments, where JSON escapes may double them.
const ARGUMENTS_BYTES_MAX: usize = RECORD_BYTES_MAX * 3 / 8;

/// Checks arguments against the schema of a tool. The error is the result for the model.
pub(crate) fn validate_arguments(
    schemas: &SchemaCache,
    spec: &ToolSpec,
    arguments: &str,
) -> Result<(), Box<ToolOutput>> {
    if arguments.len() > ARGUMENTS_BYTES_MAX {
        return Err(invalid_arguments(&spec.name, &format!("they have more than {ARGUMENTS_BYTES_MAX} bytes")));
    }
    if serde_json::from_str::<JsonObject>(arguments).is_err() {
        return Err(invalid_arguments(&spec.name, "they are not a JSON object"));
    }
    // Of two equal keys an approval rule might read one, and the tool the other.
    let object = ExactValue::parse(arguments).map_err(|error| invalid_arguments(&spec.name, &error.to_string()))?;
    match schemas.validate(&spec.parameters, &object.to_value()) {
        // Invalid schemas are refused where they are declared; one that slips through allows everything.
        Ok(()) | Err(ArgumentsError::Schema(SchemaError::Invalid(_))) => Ok(()),
        // An earlier version accepted it.
        Err(ArgumentsError::Schema(error)) => {
            let message = format!("The schema of `{}` cannot be used: {error}. Nothing was run.", spec.name);
            Err(Box::new(ToolOutput::failed(ErrorCode::InvalidTool, message)))
        }
        Err(error) => Err(invalid_arguments(&spec.name, &error.to_string())),
    }
}

fn invalid_arguments(name: &str, why: &str) -> Box<ToolOutput> {
    let message = format!("The arguments of `{name}` cannot be used: {why}. Nothing was run; call it again.");
    Box::new(ToolOutput::failed(ErrorCode::InvalidArguments, message))
}
