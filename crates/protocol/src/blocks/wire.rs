//! The frames. Field order is wire order; what may be absent is left out, what may be empty is `null`.

use model::event::{ActionRequest, DisplayMode, ReviewConfig};
use model::item::Block;
use model::json::JsonObject;
use model::{ApprovalKey, TaskId};
use serde::Serialize;
use serde_json::Value;

/// One event of a turn.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlocksFrame<'a> {
    /// The turn begins.
    MessageStart {
        session_id: &'a str,
        /// Seconds since 1970.
        timestamp: f64,
        display_mode: DisplayMode,
        is_new_session_from_share: bool,
        message_id: &'a TaskId,
    },
    /// A block begins.
    ContentBlockStart { index: u32, content_block: ContentBlock<'a>, message_id: &'a TaskId },
    /// It grows, or says how far it is.
    ContentBlockDelta { index: u32, delta: BlocksDelta<'a>, message_id: &'a TaskId },
    /// It is whole.
    ContentBlockStop {
        index: u32,
        /// Of a text: is it the turn's answer?
        #[serde(skip_serializing_if = "Option::is_none")]
        is_final: Option<bool>,
        message_id: &'a TaskId,
    },
    /// How the turn ended.
    MessageDelta { delta: MessageEnd, message_id: &'a TaskId },
    /// The turn is over.
    MessageStop { duration_ms: u64, message_id: &'a TaskId },
}

/// What a block is.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock<'a> {
    /// What the model thinks.
    Thinking { thinking: &'a str, subagent: Option<&'a str>, parent_tool_use_id: Option<&'a str> },
    /// What it says.
    Text { text: &'a str, subagent: Option<&'a str>, parent_tool_use_id: Option<&'a str>, is_part: bool },
    /// Why the turn ended early. Its delta says that it is no ordinary text.
    #[serde(rename = "text")]
    Terminal { text: &'a str },
    /// What it asks for.
    ToolUse {
        id: &'a str,
        name: &'a str,
        tool_use_id: &'a str,
        /// The tool's name for people.
        tool_content_message: &'a str,
        input: JsonObject,
        subagent: Option<&'a str>,
        parent_tool_use_id: Option<&'a str>,
    },
    /// What that gave.
    ToolResult {
        tool_use_id: &'a str,
        name: &'a str,
        status: ToolUseStatus,
        content: String,
        artifact: Option<Artifact<'a>>,
        subagent: Option<&'a str>,
        parent_tool_use_id: Option<&'a str>,
    },
    /// A person is asked.
    ApprovalRequest { approval_key: &'a ApprovalKey, tool_use_id: &'a str },
    /// Files are read before the model is asked.
    FileProcessing { status: &'static str, files: Vec<BlocksFile<'a>> },
}

/// Did a call do what it was asked?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolUseStatus {
    Success,
    Error,
}

/// What a front end may show of a result beside its text: the tool's own, or the blocks that the text leaves out.
pub(super) enum Artifact<'a> {
    Tool(&'a Value),
    Blocks(&'a [Block]),
}

impl Serialize for Artifact<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Tool(value) => value.serialize(serializer),
            Self::Blocks(blocks) => serializer.collect_map([("blocks", blocks)]),
        }
    }
}

/// A file of a `file_processing` block.
#[derive(Serialize)]
pub(super) struct BlocksFile<'a> {
    pub(super) url: &'a str,
}

/// How a block grows. Texts and thoughts say what they are; questions and files do not.
#[derive(Default, Serialize)]
pub(super) struct BlocksDelta<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extras: Option<TerminalExtras<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action_requests: Option<&'a [ActionRequest]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    review_configs: Option<&'a [ReviewConfig]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl<'a> BlocksDelta<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self { kind: Some("text_delta"), text: Some(text), ..Self::default() }
    }

    pub(super) fn thinking(thinking: &'a str) -> Self {
        Self { kind: Some("thinking_delta"), thinking: Some(thinking), ..Self::default() }
    }

    pub(super) fn terminal(text: &'a str, extras: TerminalExtras<'a>) -> Self {
        Self { extras: Some(extras), ..Self::text(text) }
    }

    pub(super) fn approval_request(
        actions: &'a [ActionRequest],
        configs: &'a [ReviewConfig],
        timeout_seconds: u64,
    ) -> Self {
        Self {
            action_requests: Some(actions),
            review_configs: Some(configs),
            timeout_seconds: Some(timeout_seconds),
            ..Self::default()
        }
    }

    pub(super) fn file_status(status: &'static str, message: &'a str) -> Self {
        Self { status: Some(status), message: Some(message), ..Self::default() }
    }
}

/// What makes a text the end of a turn.
#[derive(Serialize)]
#[serde(tag = "block_subtype", rename_all = "snake_case")]
pub(super) enum TerminalExtras<'a> {
    /// Somebody stopped it.
    UserStopped,
    /// It went wrong.
    Error { code: &'a str, can_retry: bool, error_type: &'static str, details: TerminalErrorDetails<'a> },
}

/// What went wrong.
#[derive(Serialize)]
pub(super) struct TerminalErrorDetails<'a> {
    pub(super) error: &'a str,
}

/// How a turn ended.
#[derive(Serialize)]
pub(super) struct MessageEnd {
    pub(super) stop_reason: BlocksStopReason,
}

/// How a turn ended.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BlocksStopReason {
    EndTurn,
    MaxTokens,
    Error,
    UserStopped,
}
