//! Items and blocks: how a task's output grows.
//!
//! Every one names its place: the item by `output_index` (and `item_id`), the block by `block_index`.

use crate::content::{Annotation, ImageBlock, TextBlock};
use crate::id::{CallId, ItemId, TaskId};
use crate::item::Block;
use crate::item::{FileStatus, Item, SummaryPart};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `task.output_item.added` and `.done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemEvent {
    /// The task.
    pub task_id: TaskId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The item: empty when added, whole when done.
    pub item: Item,
}

/// `task.reasoning_summary_item.added` and `.done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryEvent {
    /// The task.
    pub task_id: TaskId,
    /// The reasoning item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The part's place in `summary`.
    pub summary_index: u32,
    /// The part: empty when added, whole when done.
    pub item: SummaryPart,
}

/// `task.reasoning_summary_text.delta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryDelta {
    /// The task.
    pub task_id: TaskId,
    /// The reasoning item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The part's place in `summary`.
    pub summary_index: u32,
    /// The piece.
    pub delta: String,
}

/// `task.tool_call_arguments.delta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDelta {
    /// The task.
    pub task_id: TaskId,
    /// The call's item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The piece.
    pub delta: String,
}

/// `task.tool_call_arguments.done`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDone {
    /// The task.
    pub task_id: TaskId,
    /// The call's item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The arguments, whole. Left out when that would repeat too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

/// `task.hosted_call.updated`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostedCallUpdated {
    /// The task.
    pub task_id: TaskId,
    /// The hosted call's item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The provider's word for where it is.
    pub state: String,
    /// What it does, in the provider's shape.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub action: Option<Value>,
}

/// `task.file_processing.updated`. `processing` says that the file is read again, because the try before was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileProcessingUpdated {
    /// The task.
    pub task_id: TaskId,
    /// The item's place in `output`.
    pub output_index: u32,
    /// The file.
    pub url: String,
    /// How far it is.
    pub status: FileStatus,
    /// What there is to say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `task.text.added` and `.done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextEvent {
    /// The task.
    pub task_id: TaskId,
    /// The item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The block's place in `block_list`.
    pub block_index: u32,
    /// The block: empty when added, whole when done.
    pub item: TaggedTextBlock,
}

/// A text block as an event carries it, with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaggedTextBlock {
    /// The block.
    Text(TextBlock),
}

/// An image block as an event carries it, with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaggedImageBlock {
    /// The block.
    Image(ImageBlock),
}

impl TaggedTextBlock {
    /// The block itself.
    #[must_use]
    pub fn block(&self) -> &TextBlock {
        let Self::Text(block) = self;
        block
    }
}

impl TaggedImageBlock {
    /// The block itself.
    #[must_use]
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

/// `task.text.delta`: one more piece of the text block at `block_index` of the item at `output_index`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextDelta {
    /// The task.
    pub task_id: TaskId,
    /// The item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The block's place in `block_list`.
    pub block_index: u32,
    /// The piece.
    pub delta: String,
    /// The provider's probabilities for it, when they were asked for.
    #[serde(default, deserialize_with = "crate::json::deserialize_some", skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Value>,
}

/// `task.text.annotation.added`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnnotationAdded {
    /// The task.
    pub task_id: TaskId,
    /// The item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The block's place in `block_list`.
    pub block_index: u32,
    /// The annotation's place in `annotations`.
    pub annotation_index: u32,
    /// What refers to what.
    pub annotation: Annotation,
}

/// `task.image.added` and `.done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageEvent {
    /// The task.
    pub task_id: TaskId,
    /// The item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The block's place in `block_list`.
    pub block_index: u32,
    /// The block: empty when added, the picture when done.
    pub item: TaggedImageBlock,
}

/// `task.image.delta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageDelta {
    /// The task.
    pub task_id: TaskId,
    /// The item.
    pub item_id: ItemId,
    /// Its place in `output`.
    pub output_index: u32,
    /// The block's place in `block_list`.
    pub block_index: u32,
    /// Which partial picture, from 0.
    pub partial_image_index: u32,
    /// A whole picture, less sharp than the next.
    pub item: TaggedImageBlock,
}

/// `task.tool.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The task.
    pub task_id: TaskId,
    /// The call.
    pub call_id: CallId,
    /// The arguments that it runs with.
    pub arguments: String,
    /// Which try, from 1.
    pub attempt: u32,
}

/// `task.tool.progress`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolProgress {
    /// The task.
    pub task_id: TaskId,
    /// The call.
    pub call_id: CallId,
    /// What the tool says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// Of how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}
