//! A JSON parser that rejects what two parsers could read differently.

use crate::problem::Problem;
use model::error::{ErrorCode, truncate_text};
use model::json::{ExactValue, JsonLimits, parse_unique_json};

/// A small value takes a multiple of its text in memory, so a large body must consist of few long values.
const LIMITS: JsonLimits = JsonLimits { depth_max: 32, values_max: 512 * 1024 };

pub(crate) fn parse_strict_json(text: &[u8]) -> Result<ExactValue, Problem> {
    // The messages of the parser quote nothing of the text but the beginning of a duplicate key.
    let invalid = |error: serde_json::Error| {
        Problem::new(ErrorCode::InvalidJson, truncate_text(&error.to_string(), 200).into_owned())
    };
    let value = parse_unique_json(text, LIMITS).map_err(invalid)?;
    if has_nul(&value) {
        let detail = "a string contains a NUL character (\\u0000), which cannot be stored";
        return Err(Problem::new(ErrorCode::NulCharacter, detail));
    }
    Ok(value)
}

fn has_nul(value: &ExactValue) -> bool {
    match value {
        ExactValue::String(text) => text.contains('\0'),
        ExactValue::Array(list) => list.iter().any(has_nul),
        ExactValue::Object(map) => map.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        ExactValue::Null | ExactValue::Bool(_) | ExactValue::Number(_) => false,
    }
}
