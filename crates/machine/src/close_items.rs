//! Ends of items and their parts: each `done` carries what the deltas made of it.

use crate::MachineOutput;
use crate::state::RunState;
use model::TaskId;
use model::content::TextBlock;
use model::event::{
    ArgumentsDone, Event, ImageEvent, ItemEvent, SummaryEvent, TaggedImageBlock, TaggedTextBlock, TextEvent,
};
use model::fold::ItemFold;
use model::history::RawItem;
use model::item::Block;
use model::item::{HostedCall, IncompleteReason, Item, ItemStatus, Message, Reasoning, SummaryPart, ToolCall};
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::record::PrivatePayload;

/// How an item ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct ItemEnd {
    /// What cut it short; `None` when it is whole.
    pub(crate) incomplete_reason: Option<IncompleteReason>,
    /// The item as it came from upstream.
    pub(crate) raw: Option<RawItem>,
}

/// Closes every item that a task was saying. A result is not said: it ends with what it is the result of.
pub(crate) fn close_open_items(
    run: &mut RunState,
    task: &TaskId,
    cut: Option<IncompleteReason>,
    out: &mut MachineOutput,
) {
    let Some(fold) = run.fold.task(task) else { return };
    let open: Vec<u32> =
        (0..).zip(&fold.items).filter(|(_, item)| is_open_model_item(item)).map(|(index, _)| index).collect();
    for index in open {
        close_item(run, task, index, &ItemEnd { incomplete_reason: cut, raw: None }, out);
    }
}

const fn is_open_model_item(fold: &ItemFold) -> bool {
    !fold.done && !matches!(fold.item, Item::ToolResult(_))
}

/// Closes an item and what is open in it. Arguments that were cut get no `done`: they are not whole.
pub(crate) fn close_item(
    run: &mut RunState,
    task: &TaskId,
    output_index: u32,
    ending: &ItemEnd,
    out: &mut MachineOutput,
) {
    let Some(fold) = find_item(run, task, output_index).filter(|fold| !fold.done) else { return };
    for open in fold.open_parts.clone() {
        close_part(run, task, output_index, open, out);
    }
    if ending.incomplete_reason.is_none() {
        close_arguments(run, task, output_index, out);
    }
    let Some(mut item) = find_item(run, task, output_index).map(|fold| fold.item.clone()) else { return };
    match ending.incomplete_reason {
        Some(reason) => item.mark_incomplete(reason),
        None => mark_completed(&mut item),
    }
    omit_large_fields(&mut item);
    let event = ItemEvent { task_id: task.clone(), output_index, item };
    let private = ending.raw.clone().map(|raw| PrivatePayload { raw: Some(raw), ..PrivatePayload::default() });
    out.emit_with_private(run, Event::ItemDone(event), private);
}

/// Ends a block or a summary part with what its deltas made of it.
pub(crate) fn close_part(run: &mut RunState, task: &TaskId, output_index: u32, part: u32, out: &mut MachineOutput) {
    let Some(fold) = find_item(run, task, output_index).filter(|fold| fold.open_parts.contains(&part)) else { return };
    let (task_id, item_id) = (task.clone(), fold.item.id().clone());
    let short = |text: &str| Some(text.to_owned()).filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
    let event = match &fold.item {
        Item::Reasoning(reasoning) => {
            let text = reasoning.summary.as_ref().and_then(|summary| summary.get(part as usize));
            let item = SummaryPart::Text { text: short(text.map(SummaryPart::text).unwrap_or_default()) };
            Event::SummaryDone(SummaryEvent { task_id, item_id, output_index, summary_index: part, item })
        }
        item => match item.blocks().get(part as usize) {
            Some(Block::Text(block)) => {
                let item = TaggedTextBlock::Text(TextBlock { text: short(block.text()), ..block.clone() });
                Event::TextDone(TextEvent { task_id, item_id, output_index, block_index: part, item })
            }
            Some(Block::Image(block)) => {
                let item = TaggedImageBlock::Image(block.clone());
                Event::ImageDone(ImageEvent { task_id, item_id, output_index, block_index: part, item })
            }
            _ => return,
        },
    };
    out.emit(run, event);
}

fn close_arguments(run: &mut RunState, task: &TaskId, output_index: u32, out: &mut MachineOutput) {
    let Some(fold) = find_item(run, task, output_index).filter(|fold| !fold.arguments_complete) else { return };
    let Item::ToolCall(call) = &fold.item else { return };
    let arguments = call.arguments.clone().filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
    let (task_id, item_id) = (task.clone(), call.id.clone());
    out.emit(run, Event::ArgumentsDone(ArgumentsDone { task_id, item_id, output_index, arguments }));
}

fn find_item<'a>(run: &'a RunState, task: &TaskId, output_index: u32) -> Option<&'a ItemFold> {
    run.fold.task(task)?.items.get(output_index as usize)
}

fn mark_completed(item: &mut Item) {
    match item {
        Item::Reasoning(Reasoning { status, .. })
        | Item::ToolCall(ToolCall { status, .. })
        | Item::Message(Message { status, .. })
        | Item::HostedCall(HostedCall { status, .. }) => *status = Some(ItemStatus::Completed),
        Item::FileProcessing(item) => item.status = Some(ItemStatus::Completed),
        // Results end in `tools`.
        Item::ToolResult(_) => {}
    }
}

/// A `done` that would repeat too much leaves it out: the deltas have said it.
fn omit_large_fields(item: &mut Item) {
    if serde_json::to_vec(&*item).is_ok_and(|bytes| bytes.len() <= DONE_REPEAT_BYTES_MAX) {
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
