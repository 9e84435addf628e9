//! The limits of scenario files.

/// Size of a file.
pub const SCENARIO_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Deltas of one step.
pub const REPEAT_MAX: u64 = 1_000_000;
/// `pause_ms` and `every_ms`: an hour.
pub const PAUSE_MS_MAX: u64 = 3_600_000;
/// Attempts that an `error` may fail.
pub const ERROR_TIMES_MAX: u64 = 1_000;
/// An image URL: its event has to fit a record.
pub const IMAGE_URL_BYTES_MAX: usize = 128 * 1024;
/// Memory of a compiled `match`.
pub const MATCH_REGEX_BYTES_MAX: usize = 1024 * 1024;
/// Longer values are truncated: a scenario may repeat a user's text a million times.
pub const PLACEHOLDER_CHARS_MAX: usize = 4096;
/// Tokens of a turn's `usage`.
pub const TOKENS_MAX: u64 = 1_000_000_000;
