//! Applies events of items and blocks to a task's output.

use super::task::{ItemFold, TaskFold};
use super::{FileFold, FoldError, FoldResult};
use crate::content::{ImageBlock, TextBlock};
use crate::event::{
    AnnotationAdded, BlockEvent, Event, FileProcessingUpdated, HostedCallUpdated, ImageDelta, ImageEvent, ItemEvent,
    SummaryEvent, TextEvent,
};
use crate::id::ItemId;
use crate::item::Block;
use crate::item::{FileStatus, Item, ProcessedFile, SummaryPart};
use crate::record::PrivatePayload;
use std::collections::BTreeMap;

const LONG_TEXT_BYTES: usize = 1024 * 1024;
const LONG_TEXT_GROWTH: usize = 7;
const ADDED_ROOM_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) fn apply_output_event(task: &mut TaskFold, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
    match event {
        Event::ItemAdded(e) => item_added(task, e, private),
        Event::ItemDone(e) => item_done(task, e, private),
        Event::SummaryAdded(e) => summary_added(open_item(task, e.output_index, &e.item_id)?, e),
        Event::SummaryDelta(e) => {
            let fold = open_item(task, e.output_index, &e.item_id)?;
            open_summary_part(fold, e.summary_index)?.push_str(&e.delta);
            Ok(())
        }
        Event::SummaryDone(e) => summary_done(open_item(task, e.output_index, &e.item_id)?, e),
        Event::ArgumentsDelta(e) => {
            open_arguments(open_item(task, e.output_index, &e.item_id)?)?.push_str(&e.delta);
            Ok(())
        }
        Event::ArgumentsDone(e) => {
            let fold = open_item(task, e.output_index, &e.item_id)?;
            let held = open_arguments(fold)?;
            if let Some(whole) = &e.arguments {
                held.clone_from(whole);
            }
            fold.arguments_complete = true;
            Ok(())
        }
        Event::HostedCallUpdated(e) => hosted_call_updated(open_item(task, e.output_index, &e.item_id)?, e),
        Event::FileProcessingUpdated(e) => file_processing_updated(task, e, private),
        Event::TextAdded(e) => block_added(open_item(task, e.output_index, &e.item_id)?, e),
        Event::TextDelta(e) => {
            let fold = open_item(task, e.output_index, &e.item_id)?;
            push_delta(open_text(fold, e.block_index)?.text.get_or_insert_default().make_mut(), &e.delta);
            Ok(())
        }
        Event::AnnotationAdded(e) => annotation_added(open_item(task, e.output_index, &e.item_id)?, e),
        Event::TextDone(e) => text_done(task, e),
        Event::ImageAdded(e) => block_added(open_item(task, e.output_index, &e.item_id)?, e),
        Event::ImageDelta(e) => image_delta(open_item(task, e.output_index, &e.item_id)?, e),
        Event::ImageDone(e) => image_done(task, e),
        _ => Err(FoldError),
    }
}

/// Appends to a text. One that is long already is given room for much more of it, which costs nothing until it is written:
/// a text that doubles its room is copied each time, and every copy takes new memory.
fn push_delta(text: &mut String, delta: &str) {
    let is_full = text.len() + delta.len() > text.capacity();
    if is_full && text.len() >= LONG_TEXT_BYTES {
        text.reserve(text.len().saturating_mul(LONG_TEXT_GROWTH).min(ADDED_ROOM_BYTES_MAX).max(delta.len()));
    }
    text.push_str(delta);
}

fn open_item<'a>(task: &'a mut TaskFold, output_index: u32, id: &ItemId) -> Result<&'a mut ItemFold, FoldError> {
    let fold = task.items.get_mut(output_index as usize).ok_or(FoldError)?;
    if fold.done || fold.item.id() != id { Err(FoldError) } else { Ok(fold) }
}

fn item_added(task: &mut TaskFold, e: &ItemEvent, private: Option<&PrivatePayload>) -> FoldResult {
    let next = e.output_index as usize == task.items.len();
    let known = task.items.iter().any(|fold| fold.item.id() == e.item.id());
    // Call ids are unique and each call has one result, because models require pairs (law 12).
    let pairs = match &e.item {
        Item::ToolCall(call) => task.call(&call.call_id).is_none(),
        Item::ToolResult(result) => task.call(&result.call_id).is_some() && task.result(&result.call_id).is_none(),
        _ => true,
    };
    if !next || known || !pairs {
        return Err(FoldError);
    }
    // Only the model's own items belong to a turn.
    let is_said = !matches!(e.item, Item::ToolResult(_) | Item::FileProcessing(_));
    let step = task.open_step().and_then(|_| task.steps.len().checked_sub(1)).filter(|_| is_said);
    task.items.push(ItemFold {
        item: e.item.clone(),
        step_index: step,
        done: false,
        open_parts: Vec::new(),
        arguments_complete: false,
        superseded: false,
        content: None,
        raw: None,
        acknowledged_checks: None,
        provider_call_id: private.and_then(|private| private.provider_call_id.clone()),
        started: None,
        attempts: 0,
        question: None,
        files: initial_files(&e.item),
    });
    Ok(())
}

/// The files that a new item lists. Those in progress count as one attempt.
fn initial_files(item: &Item) -> BTreeMap<String, FileFold> {
    let Item::FileProcessing(item) = item else { return BTreeMap::new() };
    let tries = |file: &ProcessedFile| u32::from(file.status == FileStatus::Processing);
    item.files.iter().map(|file| (file.url.clone(), FileFold { attempts: tries(file), content: None })).collect()
}

fn item_done(task: &mut TaskFold, e: &ItemEvent, private: Option<&PrivatePayload>) -> FoldResult {
    let fold = open_item(task, e.output_index, e.item.id())?;
    let same = match (&fold.item, &e.item) {
        (Item::ToolCall(before), Item::ToolCall(done)) => before.call_id == done.call_id,
        (Item::ToolResult(before), Item::ToolResult(done)) => before.call_id == done.call_id,
        (before, done) => std::mem::discriminant(before) == std::mem::discriminant(done),
    };
    if !fold.open_parts.is_empty() || !same {
        return Err(FoldError);
    }
    let before = std::mem::replace(&mut fold.item, e.item.clone());
    restore_omitted_fields(&mut fold.item, before);
    fold.done = true;
    if let Some(private) = private {
        fold.content.clone_from(&private.content);
        fold.raw.clone_from(&private.raw);
        fold.acknowledged_checks.clone_from(&private.acknowledged_checks);
    }
    Ok(())
}

/// A `done` may omit content that the deltas have carried: it is kept. The status is always taken from the `done`.
fn restore_omitted_fields(done: &mut Item, before: Item) {
    match (done, before) {
        (Item::Reasoning(done), Item::Reasoning(before)) => {
            fill_if_none(&mut done.summary, before.summary);
            fill_if_none(&mut done.agent, before.agent);
        }
        (Item::ToolCall(done), Item::ToolCall(before)) => {
            fill_if_none(&mut done.arguments, before.arguments);
            fill_if_none(&mut done.kind, before.kind);
            fill_if_none(&mut done.display_name, before.display_name);
            fill_if_none(&mut done.gate, before.gate);
            fill_if_none(&mut done.agent, before.agent);
            fill_if_none(&mut done.server_label, before.server_label);
            fill_if_none(&mut done.server_tool, before.server_tool);
        }
        (Item::ToolResult(done), Item::ToolResult(before)) => {
            fill_if_none(&mut done.block_list, before.block_list);
            fill_if_none(&mut done.summary, before.summary);
            fill_if_none(&mut done.artifact, before.artifact);
            fill_if_none(&mut done.ui_hints, before.ui_hints);
            fill_if_none(&mut done.agent, before.agent);
        }
        (Item::Message(done), Item::Message(before)) => {
            fill_if_none(&mut done.block_list, before.block_list);
            fill_if_none(&mut done.phase, before.phase);
            fill_if_none(&mut done.agent, before.agent);
        }
        (Item::HostedCall(done), Item::HostedCall(before)) => {
            fill_if_none(&mut done.block_list, before.block_list);
            fill_if_none(&mut done.state, before.state);
            fill_if_none(&mut done.action, before.action);
            fill_if_none(&mut done.agent, before.agent);
        }
        (Item::FileProcessing(done), Item::FileProcessing(before)) => fill_if_none(&mut done.agent, before.agent),
        _ => {}
    }
}

fn fill_if_none<T>(done: &mut Option<T>, before: Option<T>) {
    if done.is_none() {
        *done = before;
    }
}

fn summary_added(fold: &mut ItemFold, e: &SummaryEvent) -> FoldResult {
    let Item::Reasoning(reasoning) = &mut fold.item else { return Err(FoldError) };
    if e.summary_index as usize != reasoning.summary.as_ref().map_or(0, Vec::len) {
        return Err(FoldError);
    }
    reasoning.summary.get_or_insert_default().push(e.item.clone());
    fold.open_parts.push(e.summary_index);
    Ok(())
}

fn open_summary_part(fold: &mut ItemFold, index: u32) -> Result<&mut String, FoldError> {
    if !fold.open_parts.contains(&index) {
        return Err(FoldError);
    }
    let Item::Reasoning(reasoning) = &mut fold.item else { return Err(FoldError) };
    let part = reasoning.summary.get_or_insert_default().get_mut(index as usize).ok_or(FoldError)?;
    let SummaryPart::Text { text } = part;
    Ok(text.get_or_insert_default())
}

fn summary_done(fold: &mut ItemFold, e: &SummaryEvent) -> FoldResult {
    if !fold.open_parts.contains(&e.summary_index) {
        summary_added(fold, e)?;
    }
    let text = open_summary_part(fold, e.summary_index)?;
    let SummaryPart::Text { text: whole } = &e.item;
    if let Some(whole) = whole {
        text.clone_from(whole);
    }
    fold.open_parts.retain(|open| *open != e.summary_index);
    Ok(())
}

fn open_arguments(fold: &mut ItemFold) -> Result<&mut String, FoldError> {
    match &mut fold.item {
        Item::ToolCall(call) if !fold.arguments_complete => Ok(call.arguments.get_or_insert_default()),
        _ => Err(FoldError),
    }
}

fn hosted_call_updated(fold: &mut ItemFold, e: &HostedCallUpdated) -> FoldResult {
    let Item::HostedCall(call) = &mut fold.item else { return Err(FoldError) };
    call.state = Some(e.state.clone());
    if e.action.is_some() {
        call.action.clone_from(&e.action);
    }
    Ok(())
}

fn file_processing_updated(
    task: &mut TaskFold,
    e: &FileProcessingUpdated,
    private: Option<&PrivatePayload>,
) -> FoldResult {
    let fold = task.items.get_mut(e.output_index as usize).filter(|fold| !fold.done).ok_or(FoldError)?;
    let Item::FileProcessing(item) = &mut fold.item else { return Err(FoldError) };
    let now = ProcessedFile { url: e.url.clone(), status: e.status, message: e.message.clone() };
    match item.files.iter_mut().find(|file| file.url == e.url) {
        Some(file) => *file = now,
        None => item.files.push(now),
    }
    let file = fold.files.entry(e.url.clone()).or_default();
    match e.status {
        FileStatus::Processing => file.attempts = file.attempts.saturating_add(1),
        FileStatus::Completed | FileStatus::Failed => file.content = private.and_then(|it| it.content.clone()),
    }
    Ok(())
}

fn block_added<B: Clone + Into<Block>>(fold: &mut ItemFold, e: &BlockEvent<B>) -> FoldResult {
    if e.block_index as usize != fold.item.blocks().len() {
        return Err(FoldError);
    }
    fold.item.blocks_mut().ok_or(FoldError)?.push(e.item.clone().into());
    fold.open_parts.push(e.block_index);
    Ok(())
}

/// The item of a block that is done. A block without a preceding `added` is a whole block in one event.
fn item_with_block<'a, B: Clone + Into<Block>>(
    task: &'a mut TaskFold,
    e: &BlockEvent<B>,
) -> Result<&'a mut ItemFold, FoldError> {
    let fold = open_item(task, e.output_index, &e.item_id)?;
    if !fold.open_parts.contains(&e.block_index) {
        block_added(fold, e)?;
    }
    Ok(fold)
}

fn open_block(fold: &mut ItemFold, index: u32) -> Result<&mut Block, FoldError> {
    if !fold.open_parts.contains(&index) {
        return Err(FoldError);
    }
    fold.item.blocks_mut().and_then(|blocks| blocks.get_mut(index as usize)).ok_or(FoldError)
}

fn open_text(fold: &mut ItemFold, index: u32) -> Result<&mut TextBlock, FoldError> {
    match open_block(fold, index)? {
        Block::Text(text) => Ok(text),
        _ => Err(FoldError),
    }
}

fn annotation_added(fold: &mut ItemFold, e: &AnnotationAdded) -> FoldResult {
    let text = open_text(fold, e.block_index)?;
    if e.annotation_index as usize != text.annotations.as_ref().map_or(0, Vec::len) {
        return Err(FoldError);
    }
    text.annotations.get_or_insert_default().push(e.annotation.clone());
    // A text that cites belongs to the group that it cites first.
    fill_if_none(&mut text.id, e.annotation.reference_id());
    Ok(())
}

fn text_done(task: &mut TaskFold, e: &TextEvent) -> FoldResult {
    let fold = item_with_block(task, e)?;
    let text = open_text(fold, e.block_index)?;
    let before = std::mem::replace(text, e.item.block().clone());
    fill_if_none(&mut text.text, before.text);
    fill_if_none(&mut text.id, before.id);
    fill_if_none(&mut text.annotations, before.annotations);
    fill_if_none(&mut text.refusal, before.refusal);
    fold.open_parts.retain(|open| *open != e.block_index);
    Ok(())
}

fn image_delta(fold: &mut ItemFold, e: &ImageDelta) -> FoldResult {
    replace_image(open_block(fold, e.block_index)?, e.item.block())
}

/// Each image is complete and replaces the one before it.
fn replace_image(held: &mut Block, next: &ImageBlock) -> FoldResult {
    let Block::Image(held) = held else { return Err(FoldError) };
    let before = std::mem::replace(held, next.clone());
    fill_if_none(&mut held.id, before.id);
    Ok(())
}

fn image_done(task: &mut TaskFold, e: &ImageEvent) -> FoldResult {
    let fold = item_with_block(task, e)?;
    replace_image(open_block(fold, e.block_index)?, e.item.block())?;
    fold.open_parts.retain(|open| *open != e.block_index);
    Ok(())
}
