//! Every bound of this crate.

use std::time::Duration;

/// The longest message of a server.
pub(crate) const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A longer message is parsed beside the async workers.
pub(crate) const INLINE_LINE_BYTES_MAX: usize = 64 * 1024;
/// Lines of one connection that are not messages, one after the other.
pub(crate) const INVALID_LINES_MAX: usize = 64;
/// Lines of one connection: at once, and per second.
pub(crate) const LINES_BURST: f64 = 2048.0;
pub(crate) const LINES_PER_SECOND: f64 = 256.0;
/// Bytes of one connection: at once, and per second.
pub(crate) const BYTES_BURST: f64 = 32.0 * 1024.0 * 1024.0;
pub(crate) const BYTES_PER_SECOND: f64 = 8.0 * 1024.0 * 1024.0;
/// Messages that wait for a server to read them.
pub(crate) const OUTGOING_MESSAGES_MAX: usize = 64;
/// How much of a response with an error status is read.
pub(crate) const ERROR_BODY_BYTES_MAX: usize = 16 * 1024;
/// How long a server may take to accept a message that has no response.
pub(crate) const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often in a row a stream of events that broke off is resumed without another event.
pub(crate) const RESUMES_MAX: usize = 8;
/// How long to wait before it is, where the server does not say.
pub(crate) const RESUME_DELAY: Duration = Duration::from_secs(1);
/// The longest time that a server may say. The time limit of a call is shorter in most cases.
pub(crate) const RESUME_DELAY_MAX: Duration = Duration::from_secs(3600);
/// The longest time between two attempts to listen for changed tools.
pub(crate) const LISTEN_DELAY_MAX: Duration = Duration::from_secs(60);
/// Runs whose users' credentials are kept.
pub(crate) const RUNS_WITH_CREDENTIALS_MAX: usize = 10_000;
/// Pages of one list of tools.
pub(crate) const LIST_PAGES_MAX: usize = 32;
pub(crate) const TOOLS_PER_SERVER_MAX: usize = 1024;
/// The names, descriptions and schemas of one server's tools together.
pub(crate) const LIST_BYTES_MAX: usize = 2 * 1024 * 1024;
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 * 1024;
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4 * 1024;
pub(crate) const TITLE_BYTES_MAX: usize = 256;
/// The longest name of a tool, as the server knows it.
pub(crate) const SERVER_TOOL_NAME_BYTES_MAX: usize = 256;
/// How long a list is believed of a server that does not say when it changes.
pub(crate) const LIST_AGE_MAX: Duration = Duration::from_secs(300);
/// Different lists of one server that are stored with runs, per hour.
pub(crate) const LISTS_PER_HOUR_MAX: usize = 60;
pub(crate) const CALLS_PER_CONNECTION_MAX: usize = 32;
/// Calls in a row that were given up without an answer before the program is started again.
pub(crate) const UNANSWERED_CALLS_MAX: u32 = 3;
/// Progress updates of one call.
pub(crate) const PROGRESS_UPDATES_MAX: usize = 1000;
/// The time between two of them.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
pub(crate) const PROGRESS_MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Structured content and links of a result; the record that ends a result has room for twice as much.
pub(crate) const ARTIFACT_BYTES_MAX: usize = 32 * 1024;
/// Questions of one call that wait until the one before them is answered.
pub(crate) const ELICITATIONS_WAITING_MAX: usize = 8;
/// Questions of one user whose calls wait for the answer while they run.
pub(crate) const LIVE_QUESTIONS_PER_USER_MAX: usize = 16;
pub(crate) const QUESTION_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// How often a server may ask to be called again without a question.
pub(crate) const REPEATED_CALLS_MAX: u32 = 10;
/// The wait before it is.
pub(crate) const REPEATED_CALL_DELAY: Duration = Duration::from_millis(200);
/// The longest error message of a server that is shown.
pub(crate) const ERROR_TEXT_BYTES_MAX: usize = 4 * 1024;

/// Bounds of the pool, which tests make smaller.
#[derive(Clone, Copy, Debug)]
pub struct McpLimits {
    /// Programs of all users together.
    pub processes_max: usize,
    /// Programs of one user.
    pub processes_per_user_max: usize,
    /// Conversations with servers that have a URL, of all users together.
    pub sessions_max: usize,
    /// And of one user.
    pub sessions_per_user_max: usize,
    /// How long a program or a session without calls is kept.
    pub idle: Duration,
    /// How long a program that failed is not started again: at first, and at most.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// A program that ran for this long has not failed in a row.
    pub healthy: Duration,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            processes_max: 64,
            processes_per_user_max: 8,
            sessions_max: 1024,
            sessions_per_user_max: 32,
            idle: Duration::from_secs(300),
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_secs(60),
            healthy: Duration::from_secs(60),
        }
    }
}
