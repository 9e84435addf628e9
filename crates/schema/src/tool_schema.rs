//! A schema that is within the bounds, compiled.

use crate::error::{ArgumentsError, SchemaError};
use crate::graph::Graph;
use crate::limits::{
    COMPILED_PATTERN_BYTES_MAX, ERROR_CHARS_MAX, ERRORS_MAX, LISTED_ERRORS_WORK_MAX, SCHEMA_BYTES_MAX,
};
use crate::work::count_work;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// The compiled JSON Schema of a tool's arguments.
pub struct ToolSchema {
    validator: Validator,
    graph: Graph,
    text_bytes: usize,
}

/// The size of a compiled validator, as a multiple of its text.
const COMPILED_BYTES_PER_TEXT_BYTE: usize = 32;
/// A compiled pattern searches forwards and backwards, and has a cache.
const COPIES_OF_PATTERNS: usize = 4;

impl ToolSchema {
    /// Compiles a schema that is within the bounds.
    ///
    /// # Errors
    /// When it exceeds one of [`limits`](crate::limits), or is not a JSON Schema.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let text_bytes = serde_json::to_string(schema).map_or(usize::MAX, |text| text.len());
        if text_bytes > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLarge { bytes: text_bytes });
        }
        let graph = Graph::read(schema)?;
        // References name no address, so the schema needs none; without it, it cannot pass for a schema of the library.
        let mut anonymous = schema.clone();
        if let Value::Object(members) = &mut anonymous {
            members.retain(|name, value| !(matches!(name.as_str(), "$id" | "id") && value.is_string()));
        }
        let patterns = PatternOptions::regex()
            .size_limit(2 * COMPILED_PATTERN_BYTES_MAX)
            .dfa_size_limit(COMPILED_PATTERN_BYTES_MAX);
        // `format` describes. Asserting it would compile arguments as patterns (`"format": "regex"`).
        let options = jsonschema::options().with_pattern_options(patterns).should_validate_formats(false);
        match options.build(&anonymous) {
            Ok(validator) => Ok(Self { validator, graph, text_bytes }),
            Err(error) => Err(SchemaError::Invalid(error_text(&error))),
        }
    }

    /// Validates arguments, unless that would take too long.
    ///
    /// # Errors
    /// When they do not match, or when [`limits::WORK_MAX`](crate::limits::WORK_MAX) does not suffice.
    pub fn validate(&self, arguments: &Value) -> Result<(), ArgumentsError> {
        let work = count_work(&self.graph, arguments).map_err(|_| ArgumentsError::TooExpensive)?;
        if self.validator.is_valid(arguments) {
            return Ok(());
        }
        if work <= LISTED_ERRORS_WORK_MAX {
            let errors: Vec<String> =
                self.validator.iter_errors(arguments).take(ERRORS_MAX).map(|error| error_text(&error)).collect();
            return Err(ArgumentsError::Mismatch(errors.join("; ")));
        }
        let first = self.validator.validate(arguments).err().map(|error| error_text(&error));
        Err(ArgumentsError::Mismatch(first.unwrap_or_default()))
    }

    /// The size of the compiled patterns.
    pub const fn pattern_bytes(&self) -> usize {
        self.graph.pattern_bytes
    }

    /// About how much memory the compiled schema takes.
    pub(crate) const fn size_bytes(&self) -> usize {
        self.text_bytes * COMPILED_BYTES_PER_TEXT_BYTE + self.graph.pattern_bytes * COPIES_OF_PATTERNS
    }
}

fn error_text(error: &ValidationError<'_>) -> String {
    let text = format!("{} {error}", error.instance_path());
    text.trim().chars().take(ERROR_CHARS_MAX).collect()
}
