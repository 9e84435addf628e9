//! Every bound of a scenario file, by name and with its unit.

/// The longest file.
pub const SCENARIO_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The most deltas of one step.
pub const REPEAT_MAX: u64 = 1_000_000;
/// The longest `pause_ms` and `every_ms`: an hour.
pub const PAUSE_MS_MAX: u64 = 3_600_000;
/// The most tries that an `error` may spoil.
pub const ERROR_TIMES_MAX: u64 = 1_000;
/// The longest URL of a picture, so that its event fits a record.
pub const IMAGE_URL_BYTES_MAX: usize = 128 * 1024;
/// How much memory a compiled `match` may take.
pub const MATCH_REGEX_BYTES_MAX: usize = 1024 * 1024;
/// What a placeholder stands for is cut here: what a user wrote may be said again a million times.
pub const PLACEHOLDER_CHARS_MAX: usize = 4096;
/// The most tokens that a turn may say it cost.
pub const TOKENS_MAX: u64 = 1_000_000_000;
