//! Where an item and its parts stand in the output of a task, and the events that carry such a position.

use model::content::{ImageBlock, TextBlock};
use model::event::{ImageEvent, TaggedImageBlock, TaggedTextBlock, TextDelta, TextEvent};
use model::fold::TaskFold;
use model::{ItemId, TaskId};
use serde_json::Value;

/// Saturates at `u32::MAX` items, which no task reaches.
pub(crate) fn to_output_index(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

pub(crate) fn next_output_index(task: &TaskFold) -> u32 {
    to_output_index(task.items.len())
}

/// The position of a block in the output of a task.
#[derive(Clone, Debug)]
pub(crate) struct BlockPosition {
    pub(crate) task_id: TaskId,
    pub(crate) item_id: ItemId,
    pub(crate) output_index: u32,
    pub(crate) block_index: u32,
}

impl BlockPosition {
    pub(crate) fn text_event(&self, block: TextBlock) -> TextEvent {
        let Self { task_id, item_id, output_index, block_index } = self.clone();
        TextEvent { task_id, item_id, output_index, block_index, item: TaggedTextBlock::Text(block) }
    }

    pub(crate) fn text_delta(&self, delta: &str, logprobs: Option<&Value>) -> TextDelta {
        let Self { task_id, item_id, output_index, block_index } = self.clone();
        TextDelta { task_id, item_id, output_index, block_index, delta: delta.to_owned(), logprobs: logprobs.cloned() }
    }

    pub(crate) fn image_event(&self, block: ImageBlock) -> ImageEvent {
        let Self { task_id, item_id, output_index, block_index } = self.clone();
        ImageEvent { task_id, item_id, output_index, block_index, item: TaggedImageBlock::Image(block) }
    }
}
