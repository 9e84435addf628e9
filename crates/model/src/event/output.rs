//! Items, blocks and tools: how a task's output grows.
//!
//! Each event addresses its item by `output_index`, the index in the task's `output` (and by `item_id`), its block by
//! `block_index`, the index in the item's `block_list`, and its summary part by `summary_index`.

use crate::content::{Annotation, ImageBlock, TextBlock};
use crate::id::{CallId, ItemId, TaskId};
use crate::item::{Block, FileStatus, Item, SummaryPart};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

/// `task.output_item.added` and `.done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemEvent {
    pub task_id: TaskId,
    pub output_index: u32,
    /// Empty when added, complete when done.
    pub item: Item,
}

/// `task.reasoning_summary_item.added` and `.done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SummaryEvent {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    pub summary_index: u32,
    /// Empty when added, complete when done.
    pub item: SummaryPart,
}

/// `task.reasoning_summary_text.delta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SummaryDelta {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    pub summary_index: u32,
    pub delta: String,
}

/// `task.tool_call_arguments.delta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArgumentsDelta {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    pub delta: String,
}

/// `task.tool_call_arguments.done`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArgumentsDone {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    /// The complete arguments; left out above `DONE_REPEAT_BYTES_MAX`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostedCallUpdated {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    /// The state, in the provider's words.
    pub state: String,
    /// What the tool does, in the provider's shape.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub action: Option<Value>,
}

/// `task.file_processing.updated`. Status `processing` means that a lost attempt is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileProcessingUpdated {
    pub task_id: TaskId,
    pub output_index: u32,
    pub url: String,
    pub status: FileStatus,
    /// For people: the error, or a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A block that is added or done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{B}Event")]
pub struct BlockEvent<B> {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    pub block_index: u32,
    /// Empty when added, complete when done.
    pub item: B,
}

/// `task.text.added` and `.done`.
pub type TextEvent = BlockEvent<TaggedTextBlock>;

/// `task.image.added` and `.done`.
pub type ImageEvent = BlockEvent<TaggedImageBlock>;

/// A text block as an event carries it, with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaggedTextBlock {
    Text(TextBlock),
}

/// An image block as an event carries it, with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaggedImageBlock {
    Image(ImageBlock),
}

impl TaggedTextBlock {
    pub fn block(&self) -> &TextBlock {
        let Self::Text(block) = self;
        block
    }
}

impl TaggedImageBlock {
    pub fn block(&self) -> &ImageBlock {
        let Self::Image(block) = self;
        block
    }
}

impl From<TaggedTextBlock> for Block {
    fn from(item: TaggedTextBlock) -> Self {
        let TaggedTextBlock::Text(block) = item;
        Self::Text(block)
    }
}

impl From<TaggedImageBlock> for Block {
    fn from(item: TaggedImageBlock) -> Self {
        let TaggedImageBlock::Image(block) = item;
        Self::Image(block)
    }
}

/// `task.text.delta`: more text of the block at `block_index` of the item at `output_index`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TextDelta {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    pub block_index: u32,
    pub delta: String,
    /// The provider's log probabilities, when the client requested them.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Value>,
}

/// `task.text.annotation.added`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnnotationAdded {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    pub block_index: u32,
    /// Index in `annotations`.
    pub annotation_index: u32,
    pub annotation: Annotation,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageDelta {
    pub task_id: TaskId,
    pub item_id: ItemId,
    pub output_index: u32,
    pub block_index: u32,
    /// Counted from 0.
    pub partial_image_index: u32,
    /// A complete picture of lower quality than the next.
    pub item: TaggedImageBlock,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolStarted {
    pub task_id: TaskId,
    pub call_id: CallId,
    /// The arguments that the tool gets. From here on they are those of the call.
    pub arguments: String,
    /// The model's arguments, if a person changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_arguments: Option<String>,
    /// Counted from 1.
    pub attempt: u32,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolProgress {
    pub task_id: TaskId,
    pub call_id: CallId,
    pub message: Option<String>,
    pub progress: Option<f64>,
    pub total: Option<f64>,
}
