//! Every limit, by name and with its unit.
//!
//! The operator sets [`RunLimits`]; the constants describe the log's format and are the same everywhere.

pub use crate::usage::CostMicros;
use serde::{Deserialize, Serialize};

/// The largest record. Larger content is stored as a blob first.
pub const RECORD_BYTES_MAX: usize = 256 * 1024;
/// The shared state of a thread: the first records of every run repeat it.
pub const STATE_BYTES_MAX: usize = 192 * 1024;
/// A `done` event leaves out content that is longer than this: the deltas before it have carried it.
pub const DONE_REPEAT_BYTES_MAX: usize = 64 * 1024;
/// A longer delta is split. JSON escapes grow a byte to six at worst, so every part fits into a record.
pub const DELTA_BYTES_MAX: usize = 32 * 1024;
/// Records of one thread that may wait for the disk before its upstream is paused.
pub const UNDURABLE_RECORDS_MAX: usize = 64;
/// Bytes of one thread that may wait for the disk before its upstream is paused.
pub const UNDURABLE_BYTES_MAX: usize = 64 * 1024;
/// The largest single write to a subscriber.
pub const WRITE_BYTES_MAX: usize = 64 * 1024;
/// The text of its history that a thread keeps for its next turn. A text of half of it does not grow any more.
pub const HISTORY_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The longest id.
pub const ID_BYTES_MAX: usize = 64;
/// The shortest secret that is redacted: a shorter one would be redacted inside words, which garbles them and reveals it.
pub const SECRET_CHARS_MIN: usize = 8;
/// The longest approval rule.
pub const RULE_BYTES_MAX: usize = 1_000;
/// The deepest nesting of brackets and `not` in an approval rule.
pub const RULE_DEPTH_MAX: usize = 32;
/// How often one call of a tool may ask people.
pub const QUESTION_ROUNDS_MAX: u32 = 10;
/// Questions that a tool asks at once.
pub const QUESTIONS_PER_ROUND_MAX: usize = 8;
/// What a tool asks at once, with its own state: two halves of a record have to hold it beside the arguments of the call.
pub const QUESTION_BYTES_MAX: usize = 64 * 1024;
/// Files that are read per task. The model is told about those beyond it.
pub const TASK_FILES_MAX: usize = 32;
/// The part of a file's text that counts towards an estimate of tokens.
pub const FILE_ESTIMATE_CHARS_MAX: u64 = 1024 * 1024;

/// Limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunLimits {
    /// Turns per task.
    pub steps_max: u32,
    /// Nesting of sub-agents; the run's own agent is at depth 0.
    pub depth_max: u32,
    /// Sub-agents per run, at all depths together.
    pub descendants_max: usize,
    /// Consecutive turns with nothing but invalid tool calls.
    pub invalid_calls_max: u32,
    /// Input and output tokens of a run; `None` is unlimited.
    pub run_tokens_max: Option<u64>,
    pub run_cost_max: Option<CostMicros>,
    /// Tokens per user and UTC day.
    pub user_day_tokens_max: Option<u64>,
    /// Cost per user and UTC day.
    pub user_day_cost_max: Option<CostMicros>,
    /// Tools of one turn that run concurrently.
    pub parallel_tools_max: usize,
    pub tool_timeout_ms: u64,
    pub tool_output_bytes_max: usize,
    pub run_deadline_ms: u64,
    /// Retries per turn and model, as long as no output was produced.
    pub model_retries_max: u32,
    /// The longest `Retry-After` that is honoured; a longer one fails the attempt.
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
