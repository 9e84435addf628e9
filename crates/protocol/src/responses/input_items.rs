//! The input of a run as items: the history that the client sent, its messages, and its answers.

use super::wire::{
    FunctionCallItem, FunctionCallOutputItem, FunctionOutput, ItemObject, McpApprovalResponseItem, MessageItem,
    PartObject,
};
use crate::computer_calls::{ComputerCallOutputItem, Screenshot, is_client_computer_call, screenshot_url};
use crate::event_groups::{item_progress_events, native_only_events, terminal_events};
use crate::record_frames::to_json_value;
use crate::run_reader::RunReader;
use model::command::StartCommand;
use model::content::ContentPart;
use model::event::{ApprovalDecisionKind, ApprovalResolved, Event, Initiator, InputMessage};
use model::fold::RunFold;
use model::history::{HistoryEntry, PriorHistory};
use model::item::{CallKind, Item, ResultStatus, Role, plain_text};
use model::{ItemId, Record, TaskId};
use serde_json::Value;
use std::borrow::Cow;

/// Collects the input items of a run, record by record.
#[derive(Clone, Debug, Default)]
pub struct InputItems {
    reader: RunReader,
}

impl InputItems {
    /// The input items of a run that has not started.
    pub fn of_start_command(start: &StartCommand) -> Vec<Value> {
        let suffix = start.task_id.run_suffix();
        let mut items = history_items(suffix, start.prior_history.as_ref());
        if !start.input.is_empty() {
            let id = ItemId::numbered("msg", suffix, 0);
            items.push(to_json_value(&message_item(id.as_str().into(), "user", &start.input)));
        }
        items
    }

    /// The input items that this record adds.
    pub fn read_record(&mut self, record: &Record) -> Vec<Value> {
        let mut items = Vec::new();
        self.reader.read_record(record, |run, event| match event {
            Event::Created(created) => {
                if created.task.parent_task_id.is_none() {
                    let history = record.private().and_then(|private| private.prior_history);
                    items.extend(history_items(created.task_id.run_suffix(), history.as_ref()));
                    items.extend(created.task.input.iter().map(input_message_item));
                }
            }
            Event::InputAdded(added) => {
                if run.root().is_some_and(|root| root.id == added.task_id) {
                    items.extend(added.input.iter().map(input_message_item));
                }
            }
            Event::ApprovalResolved(resolved) => {
                if resolved.by == Initiator::User {
                    items.push(to_json_value(&approval_response_item(resolved)));
                }
            }
            Event::ItemDone(done) => items.extend(client_result_item(run, &done.task_id, done.output_index, record)),
            // Exhaustive on purpose: a new event is either placed above or skipped here by name.
            native_only_events!()
            | item_progress_events!()
            | terminal_events!()
            | Event::StepStarted(_)
            | Event::ItemAdded(_)
            | Event::SummaryAdded(_)
            | Event::SummaryDelta(_)
            | Event::SummaryDone(_)
            | Event::ArgumentsDone(_)
            | Event::FileProcessingUpdated(_)
            | Event::TextAdded(_)
            | Event::TextDelta(_)
            | Event::TextDone(_)
            | Event::ImageAdded(_)
            | Event::ImageDone(_)
            | Event::StepDone(_)
            | Event::ToolStarted(_)
            | Event::AgentUpdated(_)
            | Event::ApprovalRequested(_)
            | Event::Paused(_)
            | Event::Resumed(_)
            | Event::Recovered(_) => {}
        });
        items
    }
}

fn history_items(suffix: &str, history: Option<&PriorHistory>) -> Vec<Value> {
    let entries = history.map_or(&[][..], |history| &history.entries);
    entries.iter().enumerate().filter_map(|(index, entry)| history_item(suffix, index, entry)).collect()
}

/// An entry of the history. Ids of other servers are replaced, because they may not be unique here.
fn history_item(suffix: &str, index: usize, entry: &HistoryEntry) -> Option<Value> {
    let new_id = |prefix: &str| format!("{prefix}_{suffix}b{index}");
    let known_or_new_id = |prefix: &str, id: &str| {
        let is_ours = TaskId::from(id).run_id().is_some();
        if is_ours { id.to_owned() } else { new_id(prefix) }
    };
    let item = match entry {
        HistoryEntry::System { text } | HistoryEntry::Summary { text } => {
            ItemObject::Message(new_message(new_id("msg").into(), "developer", vec![PartObject::input_text(text)]))
        }
        HistoryEntry::User { content } => message_item(new_id("msg").into(), "user", content),
        HistoryEntry::Assistant { id, text, .. } => {
            let content = vec![PartObject::output_text(text, Vec::new(), &[])];
            ItemObject::Message(new_message(known_or_new_id("msg", id.as_str()).into(), "assistant", content))
        }
        HistoryEntry::Call { call_id, name, arguments, .. } => ItemObject::FunctionCall(FunctionCallItem {
            arguments,
            call_id: call_id.as_str(),
            id: known_or_new_id("fc", call_id.item_id("fc").as_str()).into(),
            name,
            status: "completed",
            item_type: "function_call",
        }),
        HistoryEntry::Result { call_id, content, status, .. } => {
            let id = known_or_new_id("fco", call_id.item_id("fco").as_str());
            function_output_item(id.into(), call_id.as_str(), content, *status)
        }
        HistoryEntry::Reasoning { .. } | HistoryEntry::Hosted { .. } | HistoryEntry::GeneratedImages { .. } => {
            return None;
        }
    };
    Some(to_json_value(&item))
}

fn input_message_item(message: &InputMessage) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "developer",
    };
    to_json_value(&message_item(message.id.as_str().into(), role, &message.content))
}

/// A message of the user, as a complete item.
pub(super) fn user_message_item(id: &str, content: &[ContentPart]) -> Value {
    to_json_value(&message_item(id.into(), "user", content))
}

fn message_item<'a>(id: Cow<'a, str>, role: &'static str, content: &'a [ContentPart]) -> ItemObject<'a> {
    ItemObject::Message(new_message(id, role, content.iter().map(content_part).collect()))
}

fn new_message<'a>(id: Cow<'a, str>, role: &'static str, content: Vec<PartObject<'a>>) -> MessageItem<'a> {
    MessageItem { content, id, phase: None, role, status: "completed", item_type: "message" }
}

fn content_part(part: &ContentPart) -> PartObject<'_> {
    match part {
        ContentPart::Text { text, .. } => PartObject::input_text(text),
        ContentPart::ImageUrl { image_url, .. } => PartObject::input_image(image_url),
        ContentPart::File { file } => PartObject::input_file(file),
    }
}

fn approval_response_item(resolved: &ApprovalResolved) -> ItemObject<'_> {
    let decision = resolved.decisions.first();
    let answer = decision.filter(|decision| decision.kind == ApprovalDecisionKind::Approve);
    ItemObject::McpApprovalResponse(McpApprovalResponseItem {
        approval_request_id: resolved.key.as_str(),
        approve: decision.is_some_and(|decision| decision.kind != ApprovalDecisionKind::Reject),
        arguments: answer.and_then(|decision| decision.args.as_ref()).map(ToString::to_string),
        id: resolved.key.as_str().replacen("apr_", "aprr_", 1),
        reason: decision.and_then(|decision| decision.message.as_deref()),
        item_type: "mcp_approval_response",
    })
}

/// The result of a tool that the client ran.
fn client_result_item(run: &RunFold, task: &TaskId, output_index: u32, record: &Record) -> Option<Value> {
    let task = run.task(task)?;
    let Item::ToolResult(result) = &task.items.get(output_index as usize)?.item else { return None };
    let (_, call) = task.call(&result.call_id)?;
    if call.kind != Some(CallKind::Client) {
        return None;
    }
    if is_client_computer_call(task, call)
        && let Some(url) = screenshot_url(result)
    {
        let acknowledged = record.private().and_then(|private| private.acknowledged_checks);
        return Some(to_json_value(&ItemObject::ComputerCallOutput(Box::new(ComputerCallOutputItem {
            acknowledged_safety_checks: acknowledged.unwrap_or_default(),
            call_id: result.call_id.as_str(),
            id: result.call_id.item_id("fco").to_string(),
            output: Screenshot::new(url),
            status: "completed",
            item_type: "computer_call_output",
        }))));
    }
    let content = [ContentPart::text(plain_text(result.block_list.as_deref().unwrap_or_default()))];
    let status = result.status.unwrap_or(ResultStatus::Completed);
    let id = result.call_id.item_id("fco");
    Some(to_json_value(&function_output_item(id.as_str().into(), result.call_id.as_str(), &content, status)))
}

/// The output is a string if all parts are texts, else a list.
fn function_output_item<'a>(
    id: Cow<'a, str>,
    call_id: &'a str,
    content: &'a [ContentPart],
    status: ResultStatus,
) -> ItemObject<'a> {
    let texts: Option<Vec<&str>> = content
        .iter()
        .map(|part| match part {
            ContentPart::Text { text, .. } => Some(text.as_str()),
            ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
        })
        .collect();
    let output = match texts {
        Some(texts) => FunctionOutput::Text(texts.join("\n")),
        None => FunctionOutput::Parts(content.iter().map(content_part).collect()),
    };
    let status = if status == ResultStatus::Incomplete { "incomplete" } else { "completed" };
    ItemObject::FunctionCallOutput(FunctionCallOutputItem {
        call_id,
        id,
        output,
        status,
        item_type: "function_call_output",
    })
}
