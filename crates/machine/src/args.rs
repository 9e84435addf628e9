//! Arguments are looked at before anything runs.

use model::block::Object;
use model::limits::RECORD_BYTES_MAX;
use model::tool::{ToolOutput, ToolSpec};

/// Longer arguments are refused: they stand in the record that starts the tool, where JSON escapes double them at worst.
const ARGUMENTS_BYTES_MAX: usize = RECORD_BYTES_MAX * 3 / 8;
/// How many complaints the model is given at once.
const COMPLAINTS_MAX: usize = 5;

/// Do the arguments fit? If not, what the model is told; nothing has run.
pub(crate) fn check(spec: &ToolSpec, arguments: &str) -> Result<(), Box<ToolOutput>> {
    if arguments.len() > ARGUMENTS_BYTES_MAX {
        return Err(invalid(&spec.name, &format!("they have more than {ARGUMENTS_BYTES_MAX} bytes")));
    }
    let Ok(object) = serde_json::from_str::<Object>(arguments) else {
        return Err(invalid(&spec.name, "they are not a JSON object"));
    };
    // A schema that is none was refused where it was declared; if one slips through, it forbids nothing.
    let Ok(schema) = jsonschema::validator_for(&spec.parameters) else { return Ok(()) };
    let object = serde_json::Value::Object(object);
    let complaints: Vec<String> = schema
        .iter_errors(&object)
        .take(COMPLAINTS_MAX)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if complaints.is_empty() { Ok(()) } else { Err(invalid(&spec.name, &complaints.join("; "))) }
}

fn invalid(name: &str, why: &str) -> Box<ToolOutput> {
    let message = format!("The arguments of `{name}` cannot be used: {why}. Nothing was run; call it again.");
    Box::new(ToolOutput::failed("invalid_arguments", message))
}
