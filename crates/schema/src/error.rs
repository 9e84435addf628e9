//! What is wrong with a schema, or with arguments.

use crate::limits::{
    COMPILED_PATTERN_BYTES_MAX, COMPILED_PATTERNS_BYTES_MAX, EXPANDED_SUBSCHEMAS_MAX, IN_PLACE_DEPTH_MAX,
    PATTERN_BYTES_MAX, PATTERNS_MAX, REFERENCE_HEIGHT_MAX, REFERENCES_MAX, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX,
};

/// Why a schema is refused. `at` is the JSON pointer of the member at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("not a JSON Schema: {0}")]
    Invalid(String),
    #[error("the schema has {bytes} bytes; the maximum is {SCHEMA_BYTES_MAX}")]
    TooLarge { bytes: usize },
    #[error("`{at}` is nested deeper than {SCHEMA_DEPTH_MAX}")]
    TooDeep { at: String },
    #[error("`{at}` refers to `{reference}`: only references into the schema itself (`#…`) are followed")]
    RemoteReference { at: String, reference: String },
    #[error("`{at}` refers to `{reference}`, which the schema does not have")]
    DanglingReference { at: String, reference: String },
    #[error("`{at}`: only the schema as a whole may have an `$id`")]
    NestedId { at: String },
    #[error("the anchor `{0}` is declared twice")]
    DuplicateAnchor(String),
    #[error("the schema has more than {REFERENCES_MAX} references")]
    TooManyReferences,
    #[error("what the references reach is nested {height} levels, added up; the maximum is {REFERENCE_HEIGHT_MAX}")]
    ReferencesTooHigh { height: usize },
    #[error("`{at}` applies itself to the same value again, so validating would never end")]
    Endless { at: String },
    #[error(
        "`{at}` applies more than {EXPANDED_SUBSCHEMAS_MAX} subschemas to one value when its references are expanded"
    )]
    ExpandsTooFar { at: String },
    #[error("`{at}` nests more than {IN_PLACE_DEPTH_MAX} subschemas that apply to the same value")]
    NestsTooFar { at: String },
    #[error("the schema has more than {PATTERNS_MAX} patterns")]
    TooManyPatterns,
    #[error("the pattern at `{at}` has more than {PATTERN_BYTES_MAX} bytes")]
    PatternTooLong { at: String },
    #[error(
        "the pattern at `{at}` cannot be used: look-around and back-references are not supported, and it must be a regular expression"
    )]
    PatternNotSupported { at: String },
    #[error(
        "the pattern at `{at}` takes more than {COMPILED_PATTERN_BYTES_MAX} bytes when compiled: bound lengths with `maxLength` instead of `{{…}}`"
    )]
    PatternTooExpensive { at: String },
    #[error("the patterns of the schema take more than {COMPILED_PATTERNS_BYTES_MAX} bytes when compiled")]
    PatternsTooExpensive,
}

/// Why arguments are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// They do not match; the text says where.
    #[error("{0}")]
    Mismatch(String),
    #[error("validating them would take too long: send fewer or shorter values, or nest them less deeply")]
    TooExpensive,
    #[error(transparent)]
    Schema(#[from] SchemaError),
}
