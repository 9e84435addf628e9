//! Sub-agents: one data part each, which replaces the one before.
//!
//! The SDK has no messages inside a message, so their calls are no calls of the message, except those that somebody has to
//! answer.

use super::EventProjector;
use crate::event_groups::{item_progress_events, terminal_events};
use crate::hosted_calls::hosted_output_text;
use crate::tool_results::result_text;
use crate::ui_stream::wire::{UiChunk, UiChunkId};
use model::event::Event;
use model::fold::{RunFold, TaskFold};
use model::item::{Item, ItemStatus, ResultStatus, ToolCall};
use model::json::to_exact_value;
use model::task::TaskStatus;
use model::{ItemId, TaskId};
use serde::Serialize;
use serde_json::json;
use serde_with::skip_serializing_none;

/// How much text a part has. Every part repeats the whole sub-agent, so the oldest texts are left out of a longer one.
const SUBAGENT_BYTES_MAX: usize = 64 * 1024;
/// The part of that which one text may have.
const ITEM_BYTES_MAX: usize = 16 * 1024;
/// About the length of an item without its text.
const ITEM_OVERHEAD_BYTES: usize = 128;

#[skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UiSubagent<'a> {
    task_id: &'a TaskId,
    agent: &'a str,
    parent_task_id: Option<&'a TaskId>,
    status: TaskStatus,
    error: Option<&'a str>,
    items: Vec<UiSubagentItem<'a>>,
    /// Whether older items or texts were left out.
    truncated: Option<bool>,
}

#[skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UiSubagentItem<'a> {
    #[serde(rename = "type")]
    item_type: &'static str,
    id: &'a ItemId,
    name: Option<&'a str>,
    text: Option<String>,
    state: &'static str,
}

impl<'a> EventProjector<'a, '_> {
    pub(super) fn on_subagent_event(&mut self, task: &'a TaskFold, event: &Event) {
        match event {
            Event::Created(_) | Event::AgentUpdated(_) | terminal_events!() => self.show_subagent(task),
            Event::ItemDone(e) => {
                let item = task.items.get(e.output_index as usize).map(|fold| &fold.item);
                if let Some(Item::ToolResult(result)) = item {
                    self.on_result_done(task, result);
                }
                self.show_subagent(task);
            }
            Event::ToolStarted(e) => {
                self.on_tool_started(task, e);
                self.show_subagent(task);
            }
            Event::ApprovalRequested(e) => self.on_approval_requested(task, e),
            Event::ApprovalResolved(e) => self.on_approval_resolved(task, e),
            Event::TextDelta(e) => {
                let item = task.items.get(e.output_index as usize).map(|fold| &fold.item);
                match item {
                    Some(Item::Message(_)) => self.show_subagent_delta(task, &e.item_id, &e.delta),
                    Some(Item::ToolResult(result)) => self.show_output_delta(result, e.block_index, &e.delta),
                    _ => {}
                }
            }
            Event::SummaryDelta(e) => self.show_subagent_delta(task, &e.item_id, &e.delta),
            Event::TextAdded(e) => self.on_subagent_block(task, e.output_index, e.block_index, BlockPhase::Added),
            Event::TextDone(e) => self.on_subagent_block(task, e.output_index, e.block_index, BlockPhase::Shown),
            Event::ImageAdded(e) => self.on_subagent_block(task, e.output_index, e.block_index, BlockPhase::Added),
            Event::ImageDone(e) => self.on_subagent_block(task, e.output_index, e.block_index, BlockPhase::Shown),
            // Exhaustive on purpose: a new event is either placed above or skipped here by name.
            item_progress_events!()
            | Event::Started(_)
            | Event::StepStarted(_)
            | Event::StepDone(_)
            | Event::Retrying(_)
            | Event::ItemAdded(_)
            | Event::SummaryAdded(_)
            | Event::SummaryDone(_)
            | Event::ArgumentsDone(_)
            | Event::FileProcessingUpdated(_)
            | Event::ToolProgress(_)
            | Event::InputAdded(_)
            | Event::Paused(_)
            | Event::Resumed(_)
            | Event::StateSnapshot(_)
            | Event::StateDelta(_)
            | Event::Custom(_)
            | Event::ProviderEvent(_)
            | Event::Cancelling(_)
            | Event::Recovered(_)
            | Event::HistoryCompacted(_)
            | Event::RunHidden(_)
            | Event::Unknown(_) => {}
        }
    }

    /// A block of a result. The client knows the calls that it has to answer.
    fn on_subagent_block(&mut self, task: &TaskFold, output_index: u32, block_index: u32, phase: BlockPhase) {
        let item = task.items.get(output_index as usize).map(|fold| &fold.item);
        let Some(Item::ToolResult(result)) = item else { return };
        match phase {
            BlockPhase::Added => self.on_result_block_added(result, block_index),
            BlockPhase::Shown => self.show_partial_output(task, result),
        }
    }

    fn show_subagent(&mut self, task: &TaskFold) {
        let data = Some(to_exact_value(&subagent(self.run, task)));
        self.push(&UiChunk { id: Some(UiChunkId::Name(task.id.as_str())), data, ..UiChunk::new("data-subagent") });
    }

    fn show_subagent_delta(&mut self, task: &TaskFold, item: &ItemId, delta: &str) {
        if !delta.is_empty() {
            let data = json!({"taskId": task.id, "itemId": item, "delta": delta});
            self.push_transient("data-subagent-delta", data.into());
        }
    }
}

#[derive(Clone, Copy)]
enum BlockPhase {
    Added,
    Shown,
}

/// The newest items as far as there is room.
fn subagent<'a>(run: &'a RunFold, task: &'a TaskFold) -> UiSubagent<'a> {
    let mut items = Vec::new();
    let mut bytes_left = SUBAGENT_BYTES_MAX;
    let mut is_truncated = false;
    for fold in task.items.iter().rev().filter(|fold| fold.done && !fold.superseded) {
        let Some(mut item) = subagent_item(run, task, &fold.item) else { continue };
        if let Some(text) = &mut item.text {
            is_truncated |= truncate_text(text, bytes_left.min(ITEM_BYTES_MAX));
        }
        let bytes = item.text.as_ref().map_or(0, String::len) + ITEM_OVERHEAD_BYTES;
        let Some(rest) = bytes_left.checked_sub(bytes) else {
            is_truncated = true;
            break;
        };
        bytes_left = rest;
        items.push(item);
    }
    items.reverse();
    UiSubagent {
        task_id: &task.id,
        agent: &task.agent,
        parent_task_id: task.spec.parent_task_id.as_ref(),
        status: task.status,
        error: task.error.as_ref().map(|error| error.message.as_str()),
        items,
        truncated: is_truncated.then_some(true),
    }
}

fn subagent_item<'a>(run: &RunFold, task: &TaskFold, item: &'a Item) -> Option<UiSubagentItem<'a>> {
    let new = |item_type: &'static str, name: Option<&'a str>, text: String, state: &'static str| {
        Some(UiSubagentItem { item_type, id: item.id(), name, text: Some(text), state })
    };
    match item {
        Item::Reasoning(reasoning) => {
            let parts = reasoning.summary.iter().flatten().map(|part| part.text().to_owned());
            new("reasoning", None, parts.collect::<Vec<_>>().join("\n"), item_state(reasoning.status))
        }
        Item::Message(message) => new("text", None, message.text(), item_state(message.status)),
        Item::ToolCall(call) => {
            let (text, state) = call_outcome(run, task, call);
            Some(UiSubagentItem { item_type: "tool", id: item.id(), name: Some(&call.name), text, state })
        }
        Item::HostedCall(call) => {
            new("tool", Some(call.tool_name()), hosted_output_text(call), item_state(call.status))
        }
        // A result is the text of its call.
        Item::ToolResult(_) | Item::FileProcessing(_) => None,
    }
}

fn call_outcome(run: &RunFold, task: &TaskFold, call: &ToolCall) -> (Option<String>, &'static str) {
    let Some(Item::ToolResult(result)) = task.result(&call.call_id).map(|(_, fold)| &fold.item) else {
        return (None, if call.status == Some(ItemStatus::Incomplete) { "incomplete" } else { "running" });
    };
    let state = match result.status.unwrap_or(ResultStatus::Completed) {
        ResultStatus::InProgress => return (None, "running"),
        ResultStatus::Completed => "completed",
        ResultStatus::Failed => "failed",
        ResultStatus::Rejected => "rejected",
        ResultStatus::Incomplete => "incomplete",
        ResultStatus::Unknown => "unknown",
    };
    let error = result.error.as_ref().map(|error| error.message.clone()).filter(|text| !text.is_empty());
    (Some(error.unwrap_or_else(|| result_text(run, task, result))), state)
}

const fn item_state(status: Option<ItemStatus>) -> &'static str {
    match status {
        Some(ItemStatus::InProgress) => "running",
        Some(ItemStatus::Incomplete) => "incomplete",
        Some(ItemStatus::Failed) => "failed",
        Some(ItemStatus::Completed) | None => "completed",
    }
}

/// Leaves the end of a text that is too long. Returns whether it was.
fn truncate_text(text: &mut String, bytes_max: usize) -> bool {
    let Some(excess) = text.len().checked_sub(bytes_max).filter(|excess| *excess > 0) else { return false };
    let start = (excess..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.replace_range(..start, "");
    true
}
