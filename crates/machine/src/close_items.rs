//! Ends items and their parts: each `done` event repeats what the deltas added up to.

use crate::output::{RunWriter, json_size};
use crate::positions::BlockPosition;
use model::TaskId;
use model::content::TextBlock;
use model::event::{ArgumentsDone, Event, ItemEvent, SummaryEvent};
use model::fold::ItemFold;
use model::history::RawItem;
use model::item::Block;
use model::item::{IncompleteReason, Item, ItemStatus, Message, Reasoning, SummaryPart, ToolCall};
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::record::PrivatePayload;

#[derive(Clone, Debug, Default)]
pub(crate) struct ItemEnd {
    /// `None` when the item is complete.
    pub(crate) incomplete_reason: Option<IncompleteReason>,
    /// The item as the provider sent it.
    pub(crate) raw: Option<RawItem>,
}

/// Closes every open item that the model of a task wrote. Results end in `tool_result` and `sub_agent`.
pub(crate) fn close_open_items(writer: &mut RunWriter<'_>, task: &TaskId, incomplete_reason: Option<IncompleteReason>) {
    let Some(fold) = writer.run.fold.task(task) else { return };
    let open: Vec<u32> =
        (0..).zip(&fold.items).filter(|(_, item)| is_open_model_item(item)).map(|(index, _)| index).collect();
    for index in open {
        close_item(writer, task, index, &ItemEnd { incomplete_reason, raw: None });
    }
}

const fn is_open_model_item(fold: &ItemFold) -> bool {
    !fold.done && !matches!(fold.item, Item::ToolResult(_))
}

/// Closes an item and its open parts. Incomplete arguments get no `done`.
pub(crate) fn close_item(writer: &mut RunWriter<'_>, task: &TaskId, output_index: u32, end: &ItemEnd) {
    let Some(fold) = writer.run.item(task, output_index).filter(|fold| !fold.done) else { return };
    for open in fold.open_parts.clone() {
        close_part(writer, task, output_index, open);
    }
    if end.incomplete_reason.is_none() {
        close_arguments(writer, task, output_index);
    }
    let Some(mut item) = writer.run.item(task, output_index).map(|fold| fold.item.clone()) else { return };
    match end.incomplete_reason {
        Some(reason) => item.mark_incomplete(reason),
        None => mark_completed(&mut item),
    }
    omit_large_fields(&mut item);
    let event = ItemEvent { task_id: task.clone(), output_index, item };
    let private = end.raw.clone().map(|raw| PrivatePayload { raw: Some(raw), ..PrivatePayload::default() });
    writer.emit_with_private(Event::ItemDone(Box::new(event)), private);
}

/// Ends a block or a summary part with the sum of its deltas.
pub(crate) fn close_part(writer: &mut RunWriter<'_>, task: &TaskId, output_index: u32, part: u32) {
    let Some(fold) = writer.run.item(task, output_index).filter(|fold| fold.open_parts.contains(&part)) else { return };
    let (task_id, item_id) = (task.clone(), fold.item.id().clone());
    let short = |text: &str| Some(text.to_owned()).filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
    let event = match &fold.item {
        Item::Reasoning(reasoning) => {
            let text = reasoning.summary.as_ref().and_then(|summary| summary.get(part as usize));
            let item = SummaryPart::Text { text: short(text.map(SummaryPart::text).unwrap_or_default()) };
            Event::SummaryDone(SummaryEvent { task_id, item_id, output_index, summary_index: part, item })
        }
        item => {
            let at = BlockPosition { task_id, item_id, output_index, block_index: part };
            match item.blocks().get(part as usize) {
                Some(Block::Text(block)) => {
                    let text = block.text.clone().unwrap_or_default();
                    let text = Some(text).filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
                    Event::TextDone(at.text_event(TextBlock { text, ..block.clone() }))
                }
                Some(Block::Image(block)) => Event::ImageDone(at.image_event(block.clone())),
                _ => return,
            }
        }
    };
    writer.emit(event);
}

fn close_arguments(writer: &mut RunWriter<'_>, task: &TaskId, output_index: u32) {
    let Some(fold) = writer.run.item(task, output_index).filter(|fold| !fold.arguments_complete) else { return };
    let Item::ToolCall(call) = &fold.item else { return };
    let arguments = call.arguments.clone().filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
    let (task_id, item_id) = (task.clone(), call.id.clone());
    writer.emit(Event::ArgumentsDone(ArgumentsDone { task_id, item_id, output_index, arguments }));
}

fn mark_completed(item: &mut Item) {
    match item {
        Item::Reasoning(Reasoning { status, .. })
        | Item::ToolCall(ToolCall { status, .. })
        | Item::Message(Message { status, .. }) => *status = Some(ItemStatus::Completed),
        Item::HostedCall(call) => {
            call.status = Some(if call.has_failed() { ItemStatus::Failed } else { ItemStatus::Completed });
        }
        Item::FileProcessing(item) => item.status = Some(ItemStatus::Completed),
        // Results end in `tool_result` and `sub_agent`.
        Item::ToolResult(_) => {}
    }
}

/// A `done` that would be too large omits what the deltas have shown.
fn omit_large_fields(item: &mut Item) {
    if json_size(item) <= DONE_REPEAT_BYTES_MAX {
        return;
    }
    match item {
        Item::Reasoning(item) => item.summary = None,
        Item::ToolCall(item) => item.arguments = None,
        Item::ToolResult(item) => item.block_list = None,
        Item::Message(item) => item.block_list = None,
        Item::HostedCall(item) => item.block_list = None,
        Item::FileProcessing(_) => {}
    }
}
