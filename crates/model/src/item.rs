//! The items of a task's `output`.
//!
//! Field order is wire order, as in requirement 000; additional fields come last and are omitted when absent, so that
//! the examples of that document round-trip unchanged. `agent` is the agent that produced the item.

mod hosted_call;

use crate::content::{ImageBlock, TextBlock};
use crate::error::ErrorInfo;
use crate::id::{CallId, ItemId};
use crate::json::{ExactValue, JsonObject};
use crate::shared_text::SharedText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

/// An item of a task's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item {
    Reasoning(Reasoning),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
    Message(Message),
    /// A tool that the provider ran.
    HostedCall(HostedCall),
    /// Files that are read before the model is called.
    FileProcessing(FileProcessing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    InProgress,
    Completed,
    /// Cut short; [`IncompleteReason`] says why.
    Incomplete,
    Failed,
}

/// Why an item is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncompleteReason {
    /// A token limit or a content filter.
    Limit,
    /// The run was cancelled.
    Cancelled,
    /// The provider failed.
    Failed,
    /// The process crashed; the step was repeated.
    Recovered,
}

/// The model's reasoning, as summary parts.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reasoning {
    /// `rs_…`
    pub id: ItemId,
    /// Left out of a `done` event above `DONE_REPEAT_BYTES_MAX`.
    pub summary: Option<Vec<SummaryPart>>,
    pub status: Option<ItemStatus>,
    pub reason: Option<IncompleteReason>,
    pub agent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SummaryPart {
    Text {
        /// Left out of a `done` event above `DONE_REPEAT_BYTES_MAX`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
}

impl SummaryPart {
    pub fn new(text: impl Into<String>) -> Self {
        Self::Text { text: Some(text.into()) }
    }

    pub fn text(&self) -> &str {
        let Self::Text { text } = self;
        text.as_deref().unwrap_or_default()
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// `fc_…`
    pub id: ItemId,
    /// `call_…`; also the id of the sub-agent's task.
    pub call_id: CallId,
    pub name: String,
    /// A JSON text, complete only when the item is: as the model wrote it, and from `task.tool.started` on as the tool got
    /// it. Left out of a `done` event above `DONE_REPEAT_BYTES_MAX`.
    pub arguments: Option<String>,
    /// The model's arguments, if a person changed them before the tool ran.
    pub original_arguments: Option<String>,
    pub kind: Option<CallKind>,
    /// The tool's name for people.
    pub display_name: Option<String>,
    pub gate: Option<ApprovalGate>,
    pub status: Option<ItemStatus>,
    pub reason: Option<IncompleteReason>,
    pub agent: Option<String>,
    /// The MCP server that has the tool, by the name that it was declared with.
    pub server_label: Option<String>,
    /// The name that this server knows the tool by, where `name` is another.
    pub server_tool: Option<String>,
}

/// The name of the hosted calls that list the tools of an MCP server.
pub const MCP_LIST_TOOLS: &str = "mcp_list_tools";
/// The name of the calls with which a model operates a computer.
pub const COMPUTER_TOOL: &str = "computer";

/// What executes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    Tool,
    Agent,
    Handoff,
    Client,
    /// The provider, which asks for approval first: the result is the decision, and the provider runs the tool.
    Hosted,
    /// The server, which searches the tools that the model was not given.
    ToolSearch,
}

/// Whether a person must approve a call, as far as is known before its arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalGate {
    Never,
    /// A rule on the arguments decides.
    Maybe,
    Always,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// `fco_…`
    pub id: ItemId,
    pub call_id: CallId,
    /// For people. Left out where it need not be repeated, as at the end of a sub-agent's result.
    pub block_list: Option<Vec<Block>>,
    pub status: Option<ResultStatus>,
    pub error: Option<ErrorInfo>,
    /// A short form for people.
    pub summary: Option<String>,
    /// Data for the front end alone.
    #[serde(default, deserialize_with = "crate::json::deserialize_some")]
    pub artifact: Option<Value>,
    /// How the front end may present it.
    pub ui_hints: Option<JsonObject>,
    pub reason: Option<IncompleteReason>,
    pub agent: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    InProgress,
    Completed,
    /// The tool reported an error.
    Failed,
    /// A person or a time-out rejected the call.
    Rejected,
    /// The tool was stopped or never started.
    Incomplete,
    /// The process crashed while the tool was running; the outcome is unknown.
    Unknown,
}

/// A message of the model.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// `msg_…`
    pub id: ItemId,
    /// Always `assistant`.
    pub role: Role,
    pub block_list: Option<Vec<Block>>,
    /// The provider's classification of the message.
    pub phase: Option<String>,
    pub status: Option<ItemStatus>,
    pub reason: Option<IncompleteReason>,
    pub agent: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    System,
}

/// A tool that the provider ran, such as a web search or image generation.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostedCall {
    /// `hc_…`
    pub id: ItemId,
    /// The provider's name, such as `image_generation`. `tool_name` is that of an MCP server's tool.
    pub name: String,
    pub block_list: Option<Vec<Block>>,
    /// The provider's state, such as `searching`.
    pub state: Option<String>,
    /// What the tool does and what it returned, in the provider's shape. `arguments`, `output` and `error` are the same for
    /// all providers.
    #[serde(default, deserialize_with = "crate::json::deserialize_some")]
    pub action: Option<Value>,
    pub status: Option<ItemStatus>,
    pub reason: Option<IncompleteReason>,
    pub agent: Option<String>,
}

/// Files that are read before the model is called.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileProcessing {
    /// `fp_…`
    pub id: ItemId,
    pub files: Vec<ProcessedFile>,
    pub status: Option<ItemStatus>,
    pub reason: Option<IncompleteReason>,
    pub agent: Option<String>,
}

/// One file of a [`FileProcessing`] item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessedFile {
    pub url: String,
    pub status: FileStatus,
    /// For people: the error, or a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    Processing,
    Completed,
    /// Reading failed; the run continues.
    Failed,
}

impl Item {
    pub fn id(&self) -> &ItemId {
        match self {
            Self::Reasoning(item) => &item.id,
            Self::ToolCall(item) => &item.id,
            Self::ToolResult(item) => &item.id,
            Self::Message(item) => &item.id,
            Self::HostedCall(item) => &item.id,
            Self::FileProcessing(item) => &item.id,
        }
    }

    /// The item's blocks; empty for kinds without any.
    pub fn blocks(&self) -> &[Block] {
        match self {
            Self::ToolResult(ToolResult { block_list, .. })
            | Self::Message(Message { block_list, .. })
            | Self::HostedCall(HostedCall { block_list, .. }) => block_list.as_deref().unwrap_or_default(),
            Self::Reasoning(_) | Self::ToolCall(_) | Self::FileProcessing(_) => &[],
        }
    }

    /// The long texts of its blocks.
    pub fn long_texts(&self) -> impl Iterator<Item = &SharedText> {
        self.blocks().iter().filter_map(|block| match block {
            Block::Text(block) => block.long_text(),
            _ => None,
        })
    }

    /// The item's blocks, created if absent; `None` for kinds without any.
    pub fn blocks_mut(&mut self) -> Option<&mut Vec<Block>> {
        match self {
            Self::ToolResult(ToolResult { block_list, .. })
            | Self::Message(Message { block_list, .. })
            | Self::HostedCall(HostedCall { block_list, .. }) => Some(block_list.get_or_insert_default()),
            Self::Reasoning(_) | Self::ToolCall(_) | Self::FileProcessing(_) => None,
        }
    }

    /// Marks the item as incomplete. An item that already carries a reason keeps it.
    pub fn mark_incomplete(&mut self, why: IncompleteReason) {
        match self {
            Self::ToolResult(item) => {
                item.status = Some(ResultStatus::Incomplete);
                item.reason.get_or_insert(why);
            }
            Self::Reasoning(Reasoning { status, reason, .. })
            | Self::ToolCall(ToolCall { status, reason, .. })
            | Self::Message(Message { status, reason, .. })
            | Self::HostedCall(HostedCall { status, reason, .. })
            | Self::FileProcessing(FileProcessing { status, reason, .. }) => {
                *status = Some(ItemStatus::Incomplete);
                reason.get_or_insert(why);
            }
        }
    }
}

impl ToolCall {
    /// The name of the tool where it comes from: on an MCP server, the server's own.
    #[must_use]
    pub fn own_tool_name(&self) -> &str {
        self.server_tool.as_deref().unwrap_or(&self.name)
    }

    /// The arguments as the model wrote them.
    #[must_use]
    pub fn written_arguments(&self) -> Option<&str> {
        self.original_arguments.as_deref().or(self.arguments.as_deref())
    }

    /// Whether these are its arguments, with numbers that are written in the same way.
    #[must_use]
    pub fn has_same_arguments(&self, args: &ExactValue) -> bool {
        self.arguments.as_deref().and_then(|own| ExactValue::parse(own).ok()).as_ref() == Some(args)
    }

    /// Sets the arguments that the tool gets, and the model's if a person changed them. Earlier versions did not log the
    /// change: the calls of their logs stay as they were shown.
    pub(crate) fn set_executed_arguments(&mut self, arguments: &str, original: Option<&str>) {
        if original.is_some() || self.original_arguments.is_some() {
            self.arguments = Some(arguments.to_owned());
            self.original_arguments = original.map(str::to_owned);
        }
    }
}

impl Message {
    /// The text of the message, without images.
    pub fn text(&self) -> String {
        let blocks = self.block_list.as_deref().unwrap_or_default();
        let texts = blocks.iter().filter_map(|block| match block {
            Block::Text(block) => Some(block.text()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// An element of an item's `block_list`. Blocks other than text and images are the items of a sub-agent; they exist
/// only in rendered objects, never in an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text(TextBlock),
    Image(ImageBlock),
    Reasoning(Reasoning),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
    Message(Message),
    HostedCall(HostedCall),
    FileProcessing(FileProcessing),
}

impl From<Item> for Block {
    fn from(item: Item) -> Self {
        match item {
            Item::Reasoning(item) => Self::Reasoning(item),
            Item::ToolCall(item) => Self::ToolCall(item),
            Item::ToolResult(item) => Self::ToolResult(item),
            Item::Message(item) => Self::Message(item),
            Item::HostedCall(item) => Self::HostedCall(item),
            Item::FileProcessing(item) => Self::FileProcessing(item),
        }
    }
}

/// The text of the blocks: text blocks joined by newlines, an image as `[image <url>]`.
pub fn plain_text(blocks: &[Block]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for block in blocks {
        match block {
            Block::Text(text) => lines.push(text.text().to_owned()),
            Block::Image(image) => lines.push(format!("[image {}]", image.image_url.url)),
            Block::Reasoning(_)
            | Block::ToolCall(_)
            | Block::ToolResult(_)
            | Block::Message(_)
            | Block::HostedCall(_)
            | Block::FileProcessing(_) => {}
        }
    }
    lines.join("\n")
}
