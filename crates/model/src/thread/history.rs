//! What the model reads of a task: its input, output and results as [`HistoryEntry`] values.
//!
//! Complete steps contribute all of their items, with every result. Steps that a cancellation, a failure or a limit
//! ended contribute their text alone, superseded attempts nothing. So no call is ever without its result (law 12).
//! The content of a file stands in for the file.

use crate::content::{ContentPart, UrlKind};
use crate::event::StopReason;
use crate::fold::{ItemFold, TaskFold};
use crate::history::HistoryEntry;
use crate::id::CallId;
use crate::item::{Block, CallKind, Item, ResultStatus};
use crate::limits::FILE_ESTIMATE_CHARS_MAX;

/// What an image costs in an estimate of tokens, in characters of text.
const IMAGE_CHARS_ESTIMATE: u64 = 4_000;

/// Estimates the tokens of a history: a quarter of its characters. Providers count differently, and the estimate is
/// needed before it is known which of them is asked.
pub fn estimate_tokens<'a>(entries: impl IntoIterator<Item = &'a HistoryEntry>) -> u64 {
    let inline_chars = |entry: &HistoryEntry| serde_json::to_vec(entry).map_or(0, |bytes| bytes.len()) as u64;
    let external_chars = |entry: &HistoryEntry| entry.parts().iter().map(estimate_external_chars).sum::<u64>();
    entries.into_iter().map(|entry| inline_chars(entry) + external_chars(entry)).sum::<u64>() / 4
}

/// Estimates content that the entry only links to.
fn estimate_external_chars(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Text { .. } => 0,
        ContentPart::ImageUrl { image_url, .. } if UrlKind::of(&image_url.url) == UrlKind::Data => 0,
        ContentPart::ImageUrl { .. } => IMAGE_CHARS_ESTIMATE,
        ContentPart::File { file } => file.size.unwrap_or_default().min(FILE_ESTIMATE_CHARS_MAX),
    }
}

/// The history of a task.
pub fn history_entries(task: &TaskFold) -> Vec<HistoryEntry> {
    split_history_entries(task, task.steps.len()).0
}

/// The history of a task in two parts, split after the given number of attempts.
pub fn split_history_entries(task: &TaskFold, attempts: usize) -> (Vec<HistoryEntry>, Vec<HistoryEntry>) {
    let input = task.spec.input.iter().map(|message| user_entry(task, &message.content));
    let mut before: Vec<HistoryEntry> = input.chain(inputs_after_steps(task, 0)).collect();
    before.extend(entries_of_steps(task, 0, attempts));
    (before, entries_of_steps(task, attempts, task.steps.len()))
}

/// The history of a run, after the prior history that its request carried.
pub(super) fn entries_with_prior_history(root: &TaskFold) -> Vec<HistoryEntry> {
    let prior = root.prior_history.as_ref().map_or(&[][..], |prior| &prior.entries);
    root.entries_with_file_contents(prior).into_iter().chain(history_entries(root)).collect()
}

fn user_entry(task: &TaskFold, content: &[ContentPart]) -> HistoryEntry {
    HistoryEntry::User { content: task.with_file_contents(content) }
}

fn entries_of_steps(task: &TaskFold, from: usize, to: usize) -> Vec<HistoryEntry> {
    let mut out = Vec::new();
    for (index, step) in task.steps.iter().enumerate().take(to).skip(from) {
        let items = task.items.iter().filter(|fold| fold.step_index == Some(index) && !fold.superseded);
        let mut calls: Vec<CallId> = Vec::new();
        for fold in items {
            push_item_entries(&mut out, &mut calls, fold, step.stop_reason);
        }
        out.extend(calls.iter().filter_map(|call| result_entry(task, call)));
        out.extend(inputs_after_steps(task, index + 1));
    }
    out
}

/// Input that arrived after this many attempts had started: the next turn reads it.
fn inputs_after_steps(task: &TaskFold, attempts: usize) -> impl Iterator<Item = HistoryEntry> {
    let inputs = task.inputs.iter().filter(move |input| input.after_steps == attempts);
    inputs.map(|input| user_entry(task, &input.message.content))
}

fn push_item_entries(out: &mut Vec<HistoryEntry>, calls: &mut Vec<CallId>, fold: &ItemFold, stop: Option<StopReason>) {
    let is_complete = stop.is_some_and(StopReason::is_complete);
    let images = || {
        let content = generated_images(&fold.item);
        (!content.is_empty()).then_some(HistoryEntry::GeneratedImages { content })
    };
    match &fold.item {
        Item::Reasoning(item) if is_complete => {
            out.extend(fold.raw.clone().map(|raw| HistoryEntry::Reasoning { id: item.id.clone(), raw }));
        }
        Item::Message(item) => {
            let text = item.text();
            // Providers reject empty and blank messages.
            if !text.trim().is_empty() {
                let raw = fold.raw.clone().filter(|_| is_complete);
                out.push(HistoryEntry::Assistant { id: item.id.clone(), text, raw });
            }
            out.extend(images());
        }
        // What the provider asked means something to that provider only, and not without what it sent.
        Item::ToolCall(call) if call.kind == Some(CallKind::Hosted) && fold.raw.is_none() => {}
        Item::ToolCall(call) if is_complete && fold.arguments_complete => {
            calls.push(call.call_id.clone());
            out.push(HistoryEntry::Call {
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone().unwrap_or_default(),
                provider_call_id: fold.provider_call_id.clone(),
                raw: fold.raw.clone(),
            });
        }
        Item::HostedCall(item) if is_complete => {
            let (id, name) = (item.id.clone(), item.name.clone());
            out.extend(fold.raw.clone().map(|raw| HistoryEntry::Hosted { id, name, raw }).or_else(images));
        }
        Item::Reasoning(_)
        | Item::ToolCall(_)
        | Item::ToolResult(_)
        | Item::HostedCall(_)
        | Item::FileProcessing(_) => {}
    }
}

/// The images that a model generated: all of a message, and the last of a hosted call, whose earlier ones are previews.
pub fn generated_images(item: &Item) -> Vec<ContentPart> {
    let blocks = match item {
        Item::Message(_) => item.blocks(),
        Item::HostedCall(_) => item.blocks().last().map_or(&[][..], std::slice::from_ref),
        Item::Reasoning(_) | Item::ToolCall(_) | Item::ToolResult(_) | Item::FileProcessing(_) => &[],
    };
    let images = blocks.iter().filter_map(|block| match block {
        Block::Image(image) if !image.image_url.url.is_empty() => {
            Some(ContentPart::ImageUrl { image_url: image.image_url.clone(), id: None })
        }
        _ => None,
    });
    images.collect()
}

/// The result of a call. The model is not asked before every call has one.
fn result_entry(task: &TaskFold, call_id: &CallId) -> Option<HistoryEntry> {
    let (_, fold) = task.result(call_id)?;
    let Item::ToolResult(result) = &fold.item else { return None };
    let status = result.status.unwrap_or(ResultStatus::Completed);
    let (content, acknowledged_checks) = (fold.result_content(), fold.acknowledged_checks.clone());
    Some(HistoryEntry::Result { call_id: call_id.clone(), status, content, acknowledged_checks })
}
