//! The run loop's external dependencies: models, tools, hooks, files and the clock.

use super::{BoxFuture, BoxStream};
use crate::content::ContentPart;
use crate::definition::{Definitions, InputHook};
use crate::error::ErrorInfo;
use crate::history::HistoryEntry;
use crate::id::{CallId, TaskId, ThreadId, UserId};
use crate::mcp_credentials::McpCredentials;
use crate::model_turn::{ModelEvent, ModelRequest};
use crate::question::QuestionAnswer;
use crate::seq::Millis;
use crate::tool::{ToolEvent, ToolRequest};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Streams model turns.
///
/// 1. The stream's last event is `End` or `Failed`; a stream that ends without either counts as failed.
/// 2. Dropping the stream cancels the turn and releases its resources.
/// 3. Reading ahead of the consumer is limited to a bounded buffer.
#[warn(missing_docs)]
pub trait ModelClient: Send + Sync {
    /// Starts a turn.
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;

    /// Whether the service of a model may be given web addresses of images, which it fetches from where it stands.
    fn takes_image_urls(&self, _model: &str) -> bool {
        true
    }
}

/// Runs tools.
///
/// 1. The stream's last event is `End`, `InputRequired` or `Lost`; a stream that ends without any counts as failed.
/// 2. Dropping the stream cancels the call.
/// 3. The call starts with the first poll: the engine makes the start durable before it (law 10).
/// 4. After `Question` the stream goes on when the answer was given with `answer_question`, or with `QuestionWithdrawn`. An
///    answer to a question that is not open is ignored.
#[warn(missing_docs)]
pub trait ToolRunner: Send + Sync {
    /// Calls a tool.
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent>;

    /// Answers a question of a call that runs. `question` is the tool's name of it.
    fn answer_question(&self, _call: &CallId, _question: &str, _answer: QuestionAnswer) {}
}

/// Runs input hooks, which may rewrite the input and the history before the model sees them.
///
/// 1. A hook has no side effects: after a crash it may run again.
/// 2. Dropping the future cancels the hook.
#[warn(missing_docs)]
pub trait HookRunner: Send + Sync {
    /// Runs a hook.
    fn run_hook(&self, hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>>;
}

/// Completes the definitions of a run that is about to start: asks the MCP servers for their tools.
///
/// 1. Nothing is changed but what a server does when it is started and asked for its tools: after a crash it may happen
///    again.
/// 2. It completes in bounded time, and dropping the future stops waiting.
/// 3. Equal lists of tools give equal definitions, with the same digest.
#[warn(missing_docs)]
pub trait DefinitionResolver: Send + Sync {
    /// Definitions without MCP servers, with the tools of those that a run of the agent may use. A server that does not
    /// answer is an error only where the agent requires it.
    fn resolve_definitions(&self, request: ResolveRequest) -> BoxFuture<'static, Result<Arc<Definitions>, ErrorInfo>>;

    /// Keeps the user's credentials for MCP servers in memory, for the requests of this run alone.
    fn keep_credentials(&self, _run: &TaskId, _credentials: McpCredentials) {}

    /// Forgets the credentials of a run that has ended.
    fn forget_credentials(&self, _run: &TaskId) {}
}

/// Whose definitions are completed.
#[derive(Clone, Debug)]
pub struct ResolveRequest {
    pub user: UserId,
    pub thread: ThreadId,
    /// The run that is about to start.
    pub run: TaskId,
    /// Servers for which its request brought a credential.
    pub credentials: Vec<String>,
    /// The agent of the run.
    pub agent: String,
    pub definitions: Arc<Definitions>,
}

/// The input of a hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookRequest {
    pub user: UserId,
    pub thread: ThreadId,
    /// The run that is about to start.
    pub run: TaskId,
    pub agent: String,
    /// The history that the model would receive.
    pub history: Vec<HistoryEntry>,
    pub input: Vec<ContentPart>,
}

/// The output of a hook. `None` leaves a field of the request unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookResponse {
    /// The history that the model receives instead.
    pub history: Option<Vec<HistoryEntry>>,
    /// The input that replaces the request's, also in the log.
    pub input: Option<Vec<ContentPart>>,
}

/// Reads files that users refer to by URL.
///
/// 1. Reading has no side effects: after a crash it may run again.
/// 2. It completes in bounded time. Messages are written for users.
/// 3. Dropping the future cancels the read.
#[warn(missing_docs)]
pub trait FileReader: Send + Sync {
    /// Reads a file.
    fn read_file(&self, request: FileReadRequest) -> BoxFuture<'static, FileReadOutcome>;
}

/// A request to read a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReadRequest {
    pub user: UserId,
    pub thread: ThreadId,
    pub url: String,
}

/// The result of reading a file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileReadOutcome {
    Read {
        /// The content for the model, small enough for a record.
        content: Vec<ContentPart>,
        /// A message for the user, such as a warning.
        message: Option<String>,
    },
    /// The file could not be read. The run continues.
    Failed {
        /// The reason, for the user.
        message: String,
    },
}

/// The wall clock. It determines expiry, never order.
#[warn(missing_docs)]
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now(&self) -> Millis;
}
