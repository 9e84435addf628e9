//! The elements of a task's `output`.
//!
//! Field order is wire order, as requirement 000 shows it; fields beyond that document come after its own and are left
//! out when absent, so that its examples read and write unchanged.

use crate::content::{ImageBlock, TextBlock};
use crate::error::ErrorInfo;
use crate::id::{CallId, ItemId};
use crate::json::JsonObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One element of a task's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item {
    /// What the model thought.
    Reasoning(Reasoning),
    /// What it asked for.
    ToolCall(ToolCall),
    /// What that gave.
    ToolResult(ToolResult),
    /// What it said.
    Message(Message),
    /// A tool that the provider ran itself.
    HostedCall(HostedCall),
    /// A file that was read before the model was asked.
    FileProcessing(FileProcessing),
}

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// More will come.
    InProgress,
    /// All is there.
    Completed,
    /// It was cut short; [`IncompleteReason`] says by what.
    Incomplete,
    /// It went wrong.
    Failed,
}

/// What cut an item short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncompleteReason {
    /// A token limit or a content filter.
    Limit,
    /// Somebody stopped the run.
    Cancelled,
    /// The provider failed.
    Failed,
    /// The process died; the step was done again.
    Recovered,
}

/// What the model thought, as summary parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// `rs_…`
    pub id: ItemId,
    /// The parts, each a text. A `done` that would repeat too much leaves them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Vec<SummaryPart>>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ItemStatus>,
    /// What cut it short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<IncompleteReason>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// One part of a reasoning summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SummaryPart {
    /// Words.
    Text {
        /// The words. A `done` that would repeat too much leaves them out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
}

impl SummaryPart {
    /// A part with these words.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self::Text { text: Some(text.into()) }
    }

    /// The words.
    #[must_use]
    pub fn text(&self) -> &str {
        let Self::Text { text } = self;
        text.as_deref().unwrap_or_default()
    }
}

/// What the model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// `fc_…`
    pub id: ItemId,
    /// `call_…`; a sub-agent's task has this name.
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// The arguments as the model wrote them: a JSON text, whole only when the item is completed. A `done` that would
    /// repeat too much leaves them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Who answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<CallKind>,
    /// The tool's name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Whether a person is asked first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<ApprovalGate>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ItemStatus>,
    /// What cut it short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<IncompleteReason>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Who answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A tool that the server runs.
    Tool,
    /// A sub-agent.
    Agent,
    /// Another agent takes over.
    Handoff,
    /// The client that asked.
    Client,
}

/// Whether a person is asked before a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalGate {
    /// Nobody is asked.
    Never,
    /// A rule on the arguments decides.
    Maybe,
    /// Somebody is always asked.
    Always,
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// `fco_…`
    pub id: ItemId,
    /// The call that it answers.
    pub call_id: CallId,
    /// What people see. Absent where it need not be repeated, as at the end of a sub-agent's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_list: Option<Vec<Block>>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ResultStatus>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// A short form for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Something for the front end alone.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Value>,
    /// How the front end may show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui_hints: Option<JsonObject>,
    /// What cut it short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<IncompleteReason>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// How a tool result ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    /// More will come.
    InProgress,
    /// The tool did it.
    Completed,
    /// The tool says that it could not.
    Failed,
    /// A person, or a time-out, said no.
    Rejected,
    /// It was stopped, or never started.
    Incomplete,
    /// The process died while the tool ran: nobody knows.
    Unknown,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `msg_…`
    pub id: ItemId,
    /// `assistant`.
    pub role: Role,
    /// What people see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_list: Option<Vec<Block>>,
    /// The provider's word for what kind of message it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ItemStatus>,
    /// What cut it short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<IncompleteReason>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A person.
    User,
    /// The model.
    Assistant,
    /// The operator.
    System,
}

/// A tool that the provider ran itself: a web search, an image that it drew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostedCall {
    /// `hc_…`
    pub id: ItemId,
    /// The provider's tool, such as `image_generation`.
    pub name: String,
    /// What it gave, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_list: Option<Vec<Block>>,
    /// The provider's word for where it is, such as `searching`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What it does, in the provider's shape.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub action: Option<Value>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ItemStatus>,
    /// What cut it short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<IncompleteReason>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// A file that was read before the model was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileProcessing {
    /// `fp_…`
    pub id: ItemId,
    /// The files, each with how far it is.
    pub files: Vec<ProcessedFile>,
    /// How far all of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ItemStatus>,
    /// What cut it short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<IncompleteReason>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// One file of a [`FileProcessing`] item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessedFile {
    /// Where it came from.
    pub url: String,
    /// How far it is.
    pub status: FileStatus,
    /// What there is to say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    /// It is being read.
    Processing,
    /// It was read.
    Completed,
    /// It could not be read; the run goes on.
    Failed,
}

impl Item {
    /// The item's name.
    #[must_use]
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

    /// The item's blocks, where its kind has any.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        match self {
            Self::ToolResult(ToolResult { block_list, .. })
            | Self::Message(Message { block_list, .. })
            | Self::HostedCall(HostedCall { block_list, .. }) => block_list.as_deref().unwrap_or_default(),
            Self::Reasoning(_) | Self::ToolCall(_) | Self::FileProcessing(_) => &[],
        }
    }

    /// The item's blocks, to be changed; made when they were absent. `None` where its kind has none.
    pub fn blocks_mut(&mut self) -> Option<&mut Vec<Block>> {
        match self {
            Self::ToolResult(ToolResult { block_list, .. })
            | Self::Message(Message { block_list, .. })
            | Self::HostedCall(HostedCall { block_list, .. }) => Some(block_list.get_or_insert_default()),
            Self::Reasoning(_) | Self::ToolCall(_) | Self::FileProcessing(_) => None,
        }
    }

    /// Marks the item as cut short. An item that has said what cut it keeps its word.
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

impl Message {
    /// The words of the message, without its pictures.
    #[must_use]
    pub fn text(&self) -> String {
        let blocks = self.block_list.as_deref().unwrap_or_default();
        let texts = blocks.iter().filter_map(|block| match block {
            Block::Text(block) => Some(block.text()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// One element of an item's `block_list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Words.
    Text(TextBlock),
    /// A picture.
    Image(ImageBlock),
    /// A sub-agent's thoughts.
    Reasoning(Reasoning),
    /// A sub-agent's call.
    ToolCall(ToolCall),
    /// What a sub-agent's call gave.
    ToolResult(ToolResult),
    /// What a sub-agent said.
    Message(Message),
    /// A tool that a sub-agent's provider ran itself.
    HostedCall(HostedCall),
    /// A file that was read for a sub-agent.
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

/// The plain text of a list of blocks: text blocks joined by newlines, an image as `[image <url>]`.
#[must_use]
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
