//! The bounds of schemas and of their use. `docs/tools.md` states them; the tests in `worst_cases` measure them.

/// The length of a schema as JSON text.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// The nesting of arrays and objects in a schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// The number of references of a schema.
pub const REFERENCES_MAX: usize = 512;
/// The height of everything that references reach, added up: an upper bound of how deep a compiler recurses.
pub const REFERENCE_HEIGHT_MAX: usize = 512;
/// The number of subschemas that apply to one value, with references expanded.
pub const EXPANDED_SUBSCHEMAS_MAX: u64 = 10_000;
/// How deep these subschemas are nested in each other.
pub const IN_PLACE_DEPTH_MAX: usize = 64;
/// The number of patterns of a schema.
pub const PATTERNS_MAX: usize = 64;
/// The length of a pattern.
pub const PATTERN_BYTES_MAX: usize = 512;
/// The size of a compiled pattern.
pub const COMPILED_PATTERN_BYTES_MAX: usize = 128 * 1024;
/// The size of all compiled patterns of a schema.
pub const COMPILED_PATTERNS_BYTES_MAX: usize = 512 * 1024;
/// The size of all compiled patterns of the schemas that one request declares.
pub const REQUEST_PATTERNS_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The number of keywords that may be evaluated to validate arguments.
pub const WORK_MAX: u64 = 5_000_000;
/// The number of steps that patterns may take: characters times states.
pub const PATTERN_STEPS_MAX: u64 = 20_000_000;
/// How deep evaluation may recurse, over schema and arguments together.
pub const EVALUATION_DEPTH_MAX: usize = 256;
/// Errors are listed one by one only if finding the first one took at most this much work.
pub const LISTED_ERRORS_WORK_MAX: u64 = 20_000;
/// The number of errors that are listed.
pub const ERRORS_MAX: usize = 5;
/// The length of one error, which repeats the value at fault.
pub const ERROR_CHARS_MAX: usize = 200;
