//! Results that were added and are not complete: of a sub-agent, or of a tool that has shown pieces.

use crate::close_items;
use crate::output::RunWriter;
use crate::positions::to_output_index;
use crate::state::RunState;
use model::CallId;
use model::fold::ItemFold;
use model::item::{Block, ResultStatus, ToolResult};

/// A result in progress, without content.
pub(crate) fn new_open_result(call: &CallId, agent: Option<String>) -> ToolResult {
    ToolResult {
        id: call.item_id("fco"),
        call_id: call.clone(),
        block_list: Some(Vec::new()),
        status: Some(ResultStatus::InProgress),
        error: None,
        summary: None,
        artifact: None,
        ui_hints: None,
        reason: None,
        agent,
    }
}

/// The open result of a call, and its index.
pub(crate) fn open_result<'a>(run: &'a RunState, call: &CallId) -> Option<(u32, &'a ItemFold)> {
    let (index, fold) = run.task_of_call(call)?.result(call).filter(|(_, fold)| !fold.done)?;
    Some((to_output_index(index), fold))
}

/// Closes the block that an attempt left open.
pub(crate) fn close_open_block(writer: &mut RunWriter<'_>, call: &CallId) {
    let Some(task) = writer.run.task_of_call(call).map(|task| task.id.clone()) else { return };
    let Some((index, fold)) = open_result(writer.run, call) else { return };
    for part in fold.open_parts.clone() {
        close_items::close_part(writer, &task, index, part);
    }
}

/// The reference group of the pieces of a result: all of them are one.
pub(crate) fn streamed_group(blocks: &[Block]) -> Option<u32> {
    blocks.iter().find_map(|block| match block {
        Block::Text(text) => text.id,
        Block::Image(image) => image.id,
        _ => None,
    })
}

/// What the last attempt of a tool has shown of its result.
pub(crate) fn shown_blocks<'a>(run: &'a RunState, call: &CallId) -> &'a [Block] {
    let Some((_, result)) = open_result(run, call) else { return &[] };
    let started = run.task_of_call(call).and_then(|task| task.call(call)).and_then(|(fold, _)| fold.started.as_ref());
    let before = started.map_or(0, |started| started.blocks_before);
    result.item.blocks().get(before..).unwrap_or_default()
}

pub(crate) fn blocks_bytes(blocks: &[Block]) -> usize {
    let bytes = |block: &Block| match block {
        Block::Text(text) => text.text().len(),
        Block::Image(image) => image.image_url.url.len(),
        _ => 0,
    };
    blocks.iter().map(bytes).sum()
}
