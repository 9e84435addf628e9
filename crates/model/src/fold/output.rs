//! How a task's output grows: items, their blocks, their ends.

use super::task::{ItemFold, TaskFold};
use super::{FileFold, Fit, Misfit};
use crate::block::{Block, ImageBlock, TextBlock};
use crate::event::{
    AnnotationAdded, Event, FileProcessingUpdated, HostedCallUpdated, ImageDelta, ImageEvent, ItemEvent, SummaryEvent,
    TextEvent,
};
use crate::id::ItemId;
use crate::item::{FileStatus, Item, ProcessedFile, SummaryPart};
use crate::record::Private;
use std::collections::BTreeMap;

pub(super) fn apply(task: &mut TaskFold, event: &Event, private: Option<&Private>) -> Fit {
    match event {
        Event::ItemAdded(e) => item_added(task, e, private),
        Event::ItemDone(e) => item_done(task, e, private),
        Event::SummaryAdded(e) => summary_added(open_item(task, e.output_index, &e.item_id)?, e),
        Event::SummaryDelta(e) => {
            let fold = open_item(task, e.output_index, &e.item_id)?;
            summary_part(fold, e.summary_index)?.push_str(&e.delta);
            Ok(())
        }
        Event::SummaryDone(e) => summary_done(open_item(task, e.output_index, &e.item_id)?, e),
        Event::ArgumentsDelta(e) => {
            arguments(open_item(task, e.output_index, &e.item_id)?)?.push_str(&e.delta);
            Ok(())
        }
        Event::ArgumentsDone(e) => {
            let fold = open_item(task, e.output_index, &e.item_id)?;
            let held = arguments(fold)?;
            if let Some(whole) = &e.arguments {
                held.clone_from(whole);
            }
            fold.arguments_whole = true;
            Ok(())
        }
        Event::HostedCallUpdated(e) => hosted_call(open_item(task, e.output_index, &e.item_id)?, e),
        Event::FileProcessingUpdated(e) => file_processing(task, e, private),
        Event::TextAdded(e) => block_added(task, e.output_index, &e.item_id, e.block_index, e.item.clone().into()),
        Event::TextDelta(e) => {
            let fold = open_item(task, e.output_index, &e.item_id)?;
            open_text(fold, e.block_index)?.text.get_or_insert_default().push_str(&e.delta);
            Ok(())
        }
        Event::AnnotationAdded(e) => annotation(open_item(task, e.output_index, &e.item_id)?, e),
        Event::TextDone(e) => text_done(task, e),
        Event::ImageAdded(e) => block_added(task, e.output_index, &e.item_id, e.block_index, e.item.clone().into()),
        Event::ImageDelta(e) => image_delta(open_item(task, e.output_index, &e.item_id)?, e),
        Event::ImageDone(e) => image_done(task, e),
        _ => Err(Misfit),
    }
}

fn open_item<'a>(task: &'a mut TaskFold, output_index: u32, id: &ItemId) -> Result<&'a mut ItemFold, Misfit> {
    let fold = task.items.get_mut(output_index as usize).ok_or(Misfit)?;
    if fold.closed || fold.item.id() != id { Err(Misfit) } else { Ok(fold) }
}

fn item_added(task: &mut TaskFold, e: &ItemEvent, private: Option<&Private>) -> Fit {
    let next = e.output_index as usize == task.items.len();
    let known = task.items.iter().any(|fold| fold.item.id() == e.item.id());
    // Calls are named once and answered once: what the model is given must pair them (law 12).
    let pairs = match &e.item {
        Item::ToolCall(call) => task.call(&call.call_id).is_none(),
        Item::ToolResult(result) => task.call(&result.call_id).is_some() && task.result(&result.call_id).is_none(),
        _ => true,
    };
    if !next || known || !pairs {
        return Err(Misfit);
    }
    // What is not the model's belongs to no turn.
    let is_said = !matches!(e.item, Item::ToolResult(_) | Item::FileProcessing(_));
    let step = task.open_step().and_then(|_| task.steps.len().checked_sub(1)).filter(|_| is_said);
    task.items.push(ItemFold {
        item: e.item.clone(),
        step,
        closed: false,
        open: Vec::new(),
        arguments_whole: false,
        dropped: false,
        content: None,
        raw: None,
        provider_call_id: private.and_then(|private| private.provider_call_id.clone()),
        started: None,
        tries: 0,
        files: files_of(&e.item),
    });
    Ok(())
}

/// The files that an item begins with: somebody began to read those that are being read.
fn files_of(item: &Item) -> BTreeMap<String, FileFold> {
    let Item::FileProcessing(item) = item else { return BTreeMap::new() };
    let tries = |file: &ProcessedFile| u32::from(file.status == FileStatus::Processing);
    item.files.iter().map(|file| (file.url.clone(), FileFold { tries: tries(file), content: None })).collect()
}

fn item_done(task: &mut TaskFold, e: &ItemEvent, private: Option<&Private>) -> Fit {
    let fold = open_item(task, e.output_index, e.item.id())?;
    let same = match (&fold.item, &e.item) {
        (Item::ToolCall(before), Item::ToolCall(done)) => before.call_id == done.call_id,
        (Item::ToolResult(before), Item::ToolResult(done)) => before.call_id == done.call_id,
        (before, done) => std::mem::discriminant(before) == std::mem::discriminant(done),
    };
    if !fold.open.is_empty() || !same {
        return Err(Misfit);
    }
    let before = std::mem::replace(&mut fold.item, e.item.clone());
    keep_left_out(&mut fold.item, before);
    fold.closed = true;
    if let Some(private) = private {
        fold.content.clone_from(&private.content);
        fold.raw.clone_from(&private.raw);
    }
    Ok(())
}

/// A `done` leaves out what it need not repeat: that stays as it was. How the item ended is the `done`'s alone to say.
fn keep_left_out(done: &mut Item, before: Item) {
    match (done, before) {
        (Item::Reasoning(done), Item::Reasoning(before)) => {
            keep(&mut done.summary, before.summary);
            keep(&mut done.agent, before.agent);
        }
        (Item::ToolCall(done), Item::ToolCall(before)) => {
            keep(&mut done.arguments, before.arguments);
            keep(&mut done.kind, before.kind);
            keep(&mut done.display_name, before.display_name);
            keep(&mut done.gate, before.gate);
            keep(&mut done.agent, before.agent);
        }
        (Item::ToolResult(done), Item::ToolResult(before)) => {
            keep(&mut done.block_list, before.block_list);
            keep(&mut done.summary, before.summary);
            keep(&mut done.artifact, before.artifact);
            keep(&mut done.ui_hints, before.ui_hints);
            keep(&mut done.agent, before.agent);
        }
        (Item::Message(done), Item::Message(before)) => {
            keep(&mut done.block_list, before.block_list);
            keep(&mut done.phase, before.phase);
            keep(&mut done.agent, before.agent);
        }
        (Item::HostedCall(done), Item::HostedCall(before)) => {
            keep(&mut done.block_list, before.block_list);
            keep(&mut done.state, before.state);
            keep(&mut done.action, before.action);
            keep(&mut done.agent, before.agent);
        }
        (Item::FileProcessing(done), Item::FileProcessing(before)) => keep(&mut done.agent, before.agent),
        _ => {}
    }
}

fn keep<T>(done: &mut Option<T>, before: Option<T>) {
    if done.is_none() {
        *done = before;
    }
}

fn summary_added(fold: &mut ItemFold, e: &SummaryEvent) -> Fit {
    let Item::Reasoning(reasoning) = &mut fold.item else { return Err(Misfit) };
    if e.summary_index as usize != reasoning.summary.as_ref().map_or(0, Vec::len) {
        return Err(Misfit);
    }
    reasoning.summary.get_or_insert_default().push(e.item.clone());
    fold.open.push(e.summary_index);
    Ok(())
}

fn summary_part(fold: &mut ItemFold, index: u32) -> Result<&mut String, Misfit> {
    if !fold.open.contains(&index) {
        return Err(Misfit);
    }
    let Item::Reasoning(reasoning) = &mut fold.item else { return Err(Misfit) };
    let part = reasoning.summary.get_or_insert_default().get_mut(index as usize).ok_or(Misfit)?;
    let SummaryPart::Text { text } = part;
    Ok(text.get_or_insert_default())
}

fn summary_done(fold: &mut ItemFold, e: &SummaryEvent) -> Fit {
    if !fold.open.contains(&e.summary_index) {
        summary_added(fold, e)?;
    }
    let text = summary_part(fold, e.summary_index)?;
    let SummaryPart::Text { text: whole } = &e.item;
    if let Some(whole) = whole {
        text.clone_from(whole);
    }
    fold.open.retain(|open| *open != e.summary_index);
    Ok(())
}

fn arguments(fold: &mut ItemFold) -> Result<&mut String, Misfit> {
    match &mut fold.item {
        Item::ToolCall(call) if !fold.arguments_whole => Ok(call.arguments.get_or_insert_default()),
        _ => Err(Misfit),
    }
}

fn hosted_call(fold: &mut ItemFold, e: &HostedCallUpdated) -> Fit {
    let Item::HostedCall(call) = &mut fold.item else { return Err(Misfit) };
    call.state = Some(e.state.clone());
    if e.action.is_some() {
        call.action.clone_from(&e.action);
    }
    Ok(())
}

fn file_processing(task: &mut TaskFold, e: &FileProcessingUpdated, private: Option<&Private>) -> Fit {
    let fold = task.items.get_mut(e.output_index as usize).filter(|fold| !fold.closed).ok_or(Misfit)?;
    let Item::FileProcessing(item) = &mut fold.item else { return Err(Misfit) };
    let now = ProcessedFile { url: e.url.clone(), status: e.status, message: e.message.clone() };
    match item.files.iter_mut().find(|file| file.url == e.url) {
        Some(file) => *file = now,
        None => item.files.push(now),
    }
    let file = fold.files.entry(e.url.clone()).or_default();
    match e.status {
        FileStatus::Processing => file.tries = file.tries.saturating_add(1),
        FileStatus::Completed | FileStatus::Failed => file.content = private.and_then(|it| it.content.clone()),
    }
    Ok(())
}

fn block_added(task: &mut TaskFold, output_index: u32, item_id: &ItemId, block_index: u32, block: Block) -> Fit {
    let fold = open_item(task, output_index, item_id)?;
    if block_index as usize != fold.item.blocks().len() {
        return Err(Misfit);
    }
    fold.item.blocks_mut().ok_or(Misfit)?.push(block);
    fold.open.push(block_index);
    Ok(())
}

fn open_block(fold: &mut ItemFold, index: u32) -> Result<&mut Block, Misfit> {
    if !fold.open.contains(&index) {
        return Err(Misfit);
    }
    fold.item.blocks_mut().and_then(|blocks| blocks.get_mut(index as usize)).ok_or(Misfit)
}

fn open_text(fold: &mut ItemFold, index: u32) -> Result<&mut TextBlock, Misfit> {
    match open_block(fold, index)? {
        Block::Text(text) => Ok(text),
        _ => Err(Misfit),
    }
}

fn annotation(fold: &mut ItemFold, e: &AnnotationAdded) -> Fit {
    let text = open_text(fold, e.block_index)?;
    if e.annotation_index as usize != text.annotations.as_ref().map_or(0, Vec::len) {
        return Err(Misfit);
    }
    text.annotations.get_or_insert_default().push(e.annotation.clone());
    Ok(())
}

fn text_done(task: &mut TaskFold, e: &TextEvent) -> Fit {
    let fold = open_item(task, e.output_index, &e.item_id)?;
    if !fold.open.contains(&e.block_index) {
        // A short block in one event.
        block_added(task, e.output_index, &e.item_id, e.block_index, e.item.clone().into())?;
    }
    let fold = open_item(task, e.output_index, &e.item_id)?;
    let text = open_text(fold, e.block_index)?;
    let before = std::mem::replace(text, e.item.block().clone());
    keep(&mut text.text, before.text);
    keep(&mut text.id, before.id);
    keep(&mut text.annotations, before.annotations);
    keep(&mut text.refusal, before.refusal);
    fold.open.retain(|open| *open != e.block_index);
    Ok(())
}

fn image_delta(fold: &mut ItemFold, e: &ImageDelta) -> Fit {
    picture(open_block(fold, e.block_index)?, e.item.block())
}

/// Each picture is whole and takes the place of the one before it.
fn picture(held: &mut Block, next: &ImageBlock) -> Fit {
    let Block::Image(held) = held else { return Err(Misfit) };
    let before = std::mem::replace(held, next.clone());
    keep(&mut held.id, before.id);
    Ok(())
}

fn image_done(task: &mut TaskFold, e: &ImageEvent) -> Fit {
    let fold = open_item(task, e.output_index, &e.item_id)?;
    if !fold.open.contains(&e.block_index) {
        block_added(task, e.output_index, &e.item_id, e.block_index, e.item.clone().into())?;
    }
    let fold = open_item(task, e.output_index, &e.item_id)?;
    picture(open_block(fold, e.block_index)?, e.item.block())?;
    fold.open.retain(|open| *open != e.block_index);
    Ok(())
}
