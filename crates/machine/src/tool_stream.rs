//! Results that grow while their tool runs: pieces of text, and images.
//!
//! The first piece adds the result, and the end of the tool completes it. Everything in between is read from the fold, so a
//! crash needs no code of its own: the open block is closed, and another attempt adds blocks to the same result.

use crate::open_results::{blocks_bytes, close_open_block, new_open_result, open_result, shown_blocks, streamed_group};
use crate::output::{RunWriter, split_delta};
use crate::positions::{BlockPosition, next_output_index, to_output_index};
use crate::{tool_lookup, tool_result};
use model::CallId;
use model::content::{ImageBlock, ImageUrl, TextBlock};
use model::event::{Event, ImageDelta, ItemEvent, TaggedImageBlock};
use model::item::{Block, Item};
use model::limits::RECORD_BYTES_MAX;
use model::tool::{PiecePlace, ResultPiece};

/// How many blocks the pieces of one attempt make.
const STREAMED_BLOCKS_MAX: usize = 1_024;

/// Whether a result has room for another piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultRoom {
    Enough,
    Exceeded,
}

/// Adds a piece to the result of a running call.
pub(crate) fn write_piece(
    writer: &mut RunWriter<'_>,
    call: &CallId,
    piece: ResultPiece,
    place: PiecePlace,
) -> ResultRoom {
    let shown = shown_blocks(writer.run, call);
    let bytes = blocks_bytes(shown).saturating_add(piece.bytes());
    if bytes > tool_lookup::tool_output_bytes_max(writer.run, call) || shown.len() >= STREAMED_BLOCKS_MAX {
        return ResultRoom::Exceeded;
    }
    match piece {
        ResultPiece::Text(text) => write_text(writer, call, &text, place),
        // An image that fits no record is replaced by a note, like one of a complete result.
        ResultPiece::Image { url, partial: None } if url.len() > RECORD_BYTES_MAX / 2 => {
            let note = tool_result::omitted_image_note(&url);
            write_text(writer, call, &note, PiecePlace::NewBlock);
        }
        ResultPiece::Image { url, .. } if url.len() > RECORD_BYTES_MAX / 2 => {}
        ResultPiece::Image { url, partial } => write_image(writer, call, url, partial, place),
    }
    ResultRoom::Enough
}

fn write_text(writer: &mut RunWriter<'_>, call: &CallId, text: &str, place: PiecePlace) {
    if text.is_empty() {
        return;
    }
    let Some(OpenedBlock { at, group, is_new }) = open_block(writer, call, place, BlockKind::Text) else { return };
    if is_new {
        writer.emit(Event::TextAdded(at.text_event(TextBlock { id: group, ..TextBlock::new("") })));
    }
    for piece in split_delta(text) {
        writer.emit(Event::TextDelta(at.text_delta(piece, None)));
    }
}

fn write_image(writer: &mut RunWriter<'_>, call: &CallId, url: String, partial: Option<u32>, place: PiecePlace) {
    let Some(OpenedBlock { at, group, is_new }) = open_block(writer, call, place, BlockKind::Image) else { return };
    let block = |image_url| ImageBlock { image_url, id: group };
    if is_new {
        writer.emit(Event::ImageAdded(at.image_event(block(ImageUrl::default()))));
    }
    let image = block(ImageUrl::new(url));
    writer.emit(match partial {
        Some(partial_image_index) => {
            let BlockPosition { task_id, item_id, output_index, block_index } = at;
            let item = TaggedImageBlock::Image(image);
            Event::ImageDelta(ImageDelta { task_id, item_id, output_index, block_index, partial_image_index, item })
        }
        None => Event::ImageDone(at.image_event(image)),
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Image,
}

/// The block that a piece belongs to.
struct OpenedBlock {
    at: BlockPosition,
    group: Option<u32>,
    is_new: bool,
}

/// The open block, if a piece of this kind continues it; else a new one, for which the open one is closed.
fn open_block(writer: &mut RunWriter<'_>, call: &CallId, place: PiecePlace, kind: BlockKind) -> Option<OpenedBlock> {
    let task = writer.run.task_of_call(call)?;
    let (task_id, agent) = (task.id.clone(), task.agent.clone());
    if open_result(writer.run, call).is_none() {
        let output_index = next_output_index(task);
        let item = Item::ToolResult(new_open_result(call, Some(agent)));
        writer.emit(Event::ItemAdded(Box::new(ItemEvent { task_id: task_id.clone(), output_index, item })));
    }
    let (output_index, fold) = open_result(writer.run, call)?;
    let item_id = fold.item.id().clone();
    let kind_of = |part: u32| match fold.item.blocks().get(part as usize) {
        Some(Block::Image(_)) => BlockKind::Image,
        _ => BlockKind::Text,
    };
    let open = fold.open_parts.last().copied();
    if let Some(block_index) = open.filter(|part| place == PiecePlace::OpenBlock && kind_of(*part) == kind) {
        let group = streamed_group(fold.item.blocks());
        let at = BlockPosition { task_id, item_id, output_index, block_index };
        return Some(OpenedBlock { at, group, is_new: false });
    }
    close_open_block(writer, call);
    let (_, fold) = open_result(writer.run, call)?;
    let blocks = fold.item.blocks();
    let block_index = to_output_index(blocks.len());
    let next_group = || {
        let is_first = blocks.is_empty() && tool_result::is_citable(writer.run, call);
        is_first.then(|| writer.run.reference_count().saturating_add(1))
    };
    let group = streamed_group(blocks).or_else(next_group);
    Some(OpenedBlock { at: BlockPosition { task_id, item_id, output_index, block_index }, group, is_new: true })
}
