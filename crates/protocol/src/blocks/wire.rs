//! The frames. The order of members is the order on the wire.

use crate::record_frames::write_json;
use bytes::BytesMut;
use model::content::ContentPart;
use model::error::ErrorInfo;
use model::event::{
    ActionRequest, ApprovalDecision, ApprovalRequested, DisplayMode, Initiator, InputMessage, Question, ReviewConfig,
};
use model::fold::TaskFold;
use model::item::{Block, Role};
use model::json::ExactObject;
use model::{ApprovalKey, ItemId, Millis, TaskId};
use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;

/// A delta of a text or of thinking. Nearly all frames are of this type, so it is not written member by member.
pub(super) struct TextDeltaFrame<'a> {
    pub(super) index: u32,
    pub(super) delta: TextDelta<'a>,
    pub(super) message_id: &'a TaskId,
}

#[derive(Clone, Copy)]
pub(super) enum TextDelta<'a> {
    Text(&'a str),
    Thinking(&'a str),
}

impl TextDeltaFrame<'_> {
    /// Appends the JSON of the [`BlocksFrame`] with this delta.
    pub(super) fn write_json(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"type\":\"content_block_delta\",\"index\":");
        write_json(out, &self.index);
        let text = match self.delta {
            TextDelta::Text(text) => {
                out.extend_from_slice(b",\"delta\":{\"type\":\"text_delta\",\"text\":");
                text
            }
            TextDelta::Thinking(text) => {
                out.extend_from_slice(b",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":");
                text
            }
        };
        write_json(out, text);
        out.extend_from_slice(b"},\"message_id\":");
        write_json(out, self.message_id);
        out.extend_from_slice(b"}");
    }
}

/// The text at the end of a cancelled turn. Clients compare it.
pub(super) const CANCELLED_TEXT: &str = "Người dùng đã dừng cuộc trò chuyện. Gửi tin nhắn mới để tiếp tục";
/// The text at the end of a failed turn. Clients compare it.
pub(super) const FAILED_TEXT: &str = "Đã xảy ra lỗi. Vui lòng thử lại.";

/// One event of a turn, with the turn that it belongs to.
#[derive(Serialize)]
pub(super) struct BlocksFrame<'a> {
    #[serde(flatten)]
    pub(super) event: &'a BlocksEvent<'a>,
    pub(super) message_id: &'a TaskId,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlocksEvent<'a> {
    MessageStart {
        session_id: &'a str,
        /// Seconds since 1970.
        timestamp: f64,
        display_mode: DisplayMode,
        is_new_session_from_share: bool,
        /// What the turn answers, for clients that did not send it.
        input: Vec<BlocksInput<'a>>,
    },
    /// Messages that the running turn was sent.
    InputAdded {
        input: Vec<BlocksInput<'a>>,
    },
    ApprovalResolved {
        approval_key: &'a ApprovalKey,
        decisions: &'a [ApprovalDecision],
        by: Initiator,
    },
    ContentBlockStart {
        index: u32,
        content_block: ContentBlock<'a>,
    },
    ContentBlockDelta {
        index: u32,
        delta: BlocksDelta<'a>,
    },
    ContentBlockStop {
        index: u32,
        /// Whether the text is the turn's answer. Only texts have it.
        #[serde(skip_serializing_if = "Option::is_none")]
        is_final: Option<bool>,
    },
    MessageDelta {
        delta: MessageEnd,
    },
    MessageStop {
        duration_ms: u64,
    },
}

/// A message to the agent, as `chat` has it: text, and the addresses of files and images.
#[derive(Serialize)]
pub(super) struct BlocksInput<'a> {
    id: &'a ItemId,
    role: Role,
    content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    content_urls: Vec<&'a str>,
}

impl<'a> From<&'a InputMessage> for BlocksInput<'a> {
    fn from(message: &'a InputMessage) -> Self {
        let (mut texts, mut content_urls) = (Vec::new(), Vec::new());
        for part in &message.content {
            match part {
                ContentPart::Text { text, .. } => texts.push(text.as_str()),
                ContentPart::ImageUrl { image_url, .. } => content_urls.push(image_url.url.as_str()),
                // A stored file has a path instead, for which clients request a signed address.
                ContentPart::File { file } => content_urls.extend(file.url.as_deref().or(file.path.as_deref())),
            }
        }
        Self { id: &message.id, role: message.role, content: texts.join("\n"), content_urls }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock<'a> {
    Thinking {
        thinking: &'a str,
        #[serde(flatten)]
        owner: BlockOwner<'a>,
    },
    Text {
        text: &'a str,
        #[serde(flatten)]
        owner: BlockOwner<'a>,
        is_part: bool,
    },
    /// Why the turn ended early. Its delta distinguishes it from an ordinary text.
    #[serde(rename = "text")]
    Terminal {
        text: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        tool_use_id: &'a str,
        /// The display name of the tool.
        tool_content_message: &'a str,
        /// The MCP server that has the tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        server_label: Option<&'a str>,
        input: ExactObject,
        #[serde(flatten)]
        owner: BlockOwner<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        name: &'a str,
        status: ToolUseStatus,
        content: String,
        artifact: Option<Artifact<'a>>,
        /// The arguments that ran, if a person changed those of the `tool_use` block.
        #[serde(skip_serializing_if = "Option::is_none")]
        input: Option<ExactObject>,
        #[serde(flatten)]
        owner: BlockOwner<'a>,
    },
    ApprovalRequest {
        approval_key: &'a ApprovalKey,
        tool_use_id: &'a str,
    },
    /// Files that are read before the first turn.
    FileProcessing {
        status: &'static str,
        files: Vec<BlocksFile<'a>>,
    },
}

/// The sub-agent that a block belongs to, and the call that started it. Blocks of the root have neither.
#[derive(Clone, Copy, Serialize)]
pub(super) struct BlockOwner<'a> {
    subagent: Option<&'a str>,
    parent_tool_use_id: Option<&'a str>,
}

impl<'a> From<&'a TaskFold> for BlockOwner<'a> {
    fn from(task: &'a TaskFold) -> Self {
        let is_child = task.spec.parent_task_id.is_some();
        Self {
            subagent: is_child.then_some(task.agent.as_str()),
            // The id of a sub-agent's task is the id of the call that started it.
            parent_tool_use_id: is_child.then_some(task.id.as_str()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolUseStatus {
    Success,
    Error,
}

/// Content that a front end may show in addition to a result's text: the tool's artifact, or the blocks of the result.
pub(super) enum Artifact<'a> {
    Tool(&'a Value),
    Blocks(&'a [Block]),
    /// The blocks of a hosted call, and its output in the provider's shape.
    Hosted {
        blocks: &'a [Block],
        output: Option<&'a Value>,
    },
}

#[skip_serializing_none]
#[derive(Serialize)]
struct HostedArtifact<'a> {
    blocks: Option<&'a [Block]>,
    output: Option<&'a Value>,
}

impl Serialize for Artifact<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Tool(value) => value.serialize(serializer),
            Self::Blocks(blocks) => serializer.collect_map([("blocks", blocks)]),
            Self::Hosted { blocks, output } => {
                let blocks = Some(*blocks).filter(|blocks| !blocks.is_empty());
                HostedArtifact { blocks, output: *output }.serialize(serializer)
            }
        }
    }
}

/// A file of a `file_processing` block.
#[derive(Serialize)]
pub(super) struct BlocksFile<'a> {
    pub(super) url: &'a str,
}

/// How a block grows. Only texts and thinking have a `type`.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(super) struct BlocksDelta<'a> {
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    text: Option<&'a str>,
    thinking: Option<&'a str>,
    extras: Option<TerminalExtras<'a>>,
    action_requests: Option<&'a [ActionRequest]>,
    review_configs: Option<&'a [ReviewConfig]>,
    timeout_seconds: Option<u64>,
    expires_at: Option<Millis>,
    question: Option<&'a Question>,
    status: Option<&'static str>,
    message: Option<&'a str>,
}

impl<'a> BlocksDelta<'a> {
    pub(super) fn terminal(text: &'a str, extras: TerminalExtras<'a>) -> Self {
        Self { extras: Some(extras), ..TextDelta::Text(text).into() }
    }

    pub(super) fn approval_request(request: &'a ApprovalRequested) -> Self {
        Self {
            action_requests: Some(&request.action_requests),
            review_configs: Some(&request.review_configs),
            timeout_seconds: Some(request.timeout_seconds),
            expires_at: Some(request.expires_at),
            question: request.question.as_ref(),
            ..Self::default()
        }
    }

    pub(super) fn file_status(status: &'static str, message: &'a str) -> Self {
        Self { status: Some(status), message: Some(message), ..Self::default() }
    }
}

impl<'a> From<TextDelta<'a>> for BlocksDelta<'a> {
    fn from(delta: TextDelta<'a>) -> Self {
        match delta {
            TextDelta::Text(text) => Self { kind: Some("text_delta"), text: Some(text), ..Self::default() },
            TextDelta::Thinking(thinking) => {
                Self { kind: Some("thinking_delta"), thinking: Some(thinking), ..Self::default() }
            }
        }
    }
}

/// Marks a text as the end of a turn.
#[derive(Serialize)]
#[serde(tag = "block_subtype", rename_all = "snake_case")]
pub(super) enum TerminalExtras<'a> {
    UserStopped,
    Error { code: &'a str, can_retry: bool, error_type: &'static str, details: TerminalErrorDetails<'a> },
}

impl<'a> TerminalExtras<'a> {
    pub(super) fn error(error: &'a ErrorInfo) -> Self {
        Self::Error {
            code: &error.code,
            can_retry: error.retryable.unwrap_or_default(),
            error_type: "terminal",
            details: TerminalErrorDetails { error: &error.message },
        }
    }
}

#[derive(Serialize)]
pub(super) struct TerminalErrorDetails<'a> {
    error: &'a str,
}

#[derive(Serialize)]
pub(super) struct MessageEnd {
    pub(super) stop_reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_delta_is_written_as_its_frame() {
        let message_id = &TaskId::from("task_1");
        for text in ["", "Hi", "\"quoted\" \\ back", "line\nbreak \u{1}", "ünï cödé 🦀"] {
            for (delta, index) in [(TextDelta::Text(text), 0), (TextDelta::Thinking(text), u32::MAX)] {
                let (mut written, mut by_member) = (BytesMut::new(), BytesMut::new());
                TextDeltaFrame { index, delta, message_id }.write_json(&mut written);
                let event = &BlocksEvent::ContentBlockDelta { index, delta: delta.into() };
                write_json(&mut by_member, &BlocksFrame { event, message_id });
                assert_eq!(written, by_member);
            }
        }
    }
}
