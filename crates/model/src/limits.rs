//! Every bound, by name and with its unit.
//!
//! [`RunLimits`] are the operator's to set; the constants are the log's own shape and the same everywhere.

use serde::{Deserialize, Serialize};

/// The largest record. A larger block would have to be stored elsewhere first.
pub const RECORD_BYTES_MAX: usize = 256 * 1024;
/// A `done` event leaves out what it would repeat beyond this.
pub const DONE_REPEAT_BYTES_MAX: usize = 64 * 1024;
/// A longer delta is logged in pieces. JSON escapes grow a byte to six at worst, so a piece always fits a record.
pub const DELTA_BYTES_MAX: usize = 32 * 1024;
/// How many records of one thread may wait for the disk before its upstream is left unread.
pub const UNDURABLE_RECORDS_MAX: usize = 64;
/// How many bytes of one thread may wait for the disk before its upstream is left unread.
pub const UNDURABLE_BYTES_MAX: usize = 64 * 1024;
/// The most that one write to a viewer takes.
pub const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Money, in millionths of whatever prices are in: a limit must be exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CostMicros(pub u64);

/// What a run may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunLimits {
    /// Turns of one task.
    pub steps_max: u32,
    /// How deep sub-agents may ask sub-agents; the run's own agent is at depth 0.
    pub depth_max: u32,
    /// How many sub-agents a run may have in all.
    pub descendants_max: usize,
    /// How often in a row a model may ask for tools in a way that cannot be done.
    pub invalid_calls_max: u32,
    /// Tokens of a run, read and written; `None` is no limit.
    pub run_tokens_max: Option<u64>,
    /// What a run may cost.
    pub run_cost_max: Option<CostMicros>,
    /// Tokens of a user on one day (UTC).
    pub user_day_tokens_max: Option<u64>,
    /// What a user may cost on one day.
    pub user_day_cost_max: Option<CostMicros>,
    /// Tools that run at the same time after one turn.
    pub parallel_tools_max: usize,
    /// How long a tool has.
    pub tool_timeout_ms: u64,
    /// How much a tool may give.
    pub tool_output_bytes_max: usize,
    /// How long a run has.
    pub run_deadline_ms: u64,
    /// How often a model is asked again in one turn, when it failed before anything was shown.
    pub model_retries_max: u32,
    /// A provider that asks for a longer wait is not waited for.
    pub retry_after_max_ms: u64,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            steps_max: 50,
            depth_max: 4,
            descendants_max: 32,
            invalid_calls_max: 3,
            run_tokens_max: None,
            run_cost_max: None,
            user_day_tokens_max: None,
            user_day_cost_max: None,
            parallel_tools_max: 16,
            tool_timeout_ms: 60_000,
            tool_output_bytes_max: 1024 * 1024,
            run_deadline_ms: 60 * 60 * 1000,
            model_retries_max: 2,
            retry_after_max_ms: 60_000,
        }
    }
}
