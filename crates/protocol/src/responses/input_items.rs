//! What a run was given by its clients, as items: the history that they brought, what they said, and what they answered.

use crate::run_reader::RunReader;
use model::command::StartCommand;
use model::content::{ContentPart, FileRef};
use model::event::{ApprovalDecisionKind, ApprovalResolved, Event, Initiator, InputMessage};
use model::fold::RunFold;
use model::history::{HistoryEntry, PriorHistory};
use model::item::plain_text;
use model::item::{CallKind, Item, ResultStatus, Role};
use model::{ItemId, Record, TaskId};
use serde_json::{Value, json};

/// Reads what a run was given, record by record.
#[derive(Clone, Debug, Default)]
pub struct InputItems {
    reader: RunReader,
}

impl InputItems {
    /// The items that a run is begun with, before it has begun.
    #[must_use]
    pub fn of_start_command(start: &StartCommand) -> Vec<Value> {
        let suffix = start.task_id.run_suffix();
        let mut items = history_items(suffix, start.prior_history.as_ref());
        if !start.input.is_empty() {
            items.push(message_item(ItemId::numbered("msg", suffix, 0).as_str(), "user", &start.input));
        }
        items
    }

    /// The items that this record gives the run.
    pub fn read_record(&mut self, record: &Record) -> Vec<Value> {
        let mut items = Vec::new();
        self.reader.read_record(record, |run, event| match event {
            Event::Created(created) if created.task.parent_task_id.is_none() => {
                let before = run.root().and_then(|root| root.prior_history.as_ref());
                items.extend(history_items(created.task_id.run_suffix(), before));
                items.extend(created.task.input.iter().map(input_message_item));
            }
            Event::InputAdded(added) if is_root(run, &added.task_id) => {
                items.extend(added.input.iter().map(input_message_item))
            }
            Event::ApprovalResolved(resolved) if resolved.by == Initiator::User => {
                items.push(approval_response_item(resolved))
            }
            Event::ItemDone(done) => items.extend(client_result_item(run, &done.task_id, done.output_index)),
            _ => {}
        });
        items
    }
}

fn is_root(run: &RunFold, task: &TaskId) -> bool {
    run.root().is_some_and(|root| root.id == *task)
}

/// A history that a client brought.
fn history_items(suffix: &str, before: Option<&PriorHistory>) -> Vec<Value> {
    let entries = before.map_or(&[][..], |before| &before.entries);
    entries.iter().enumerate().filter_map(|(place, entry)| history_item(suffix, place, entry)).collect()
}

/// Something of it. What is ours keeps its id; what others named may have been named so before, and is named anew.
fn history_item(suffix: &str, place: usize, entry: &HistoryEntry) -> Option<Value> {
    let anew = |kind: &str| format!("{kind}_{suffix}b{place}");
    let named = |kind: &str, id: &str| {
        let ours = TaskId::from(id).run_id().is_some();
        if ours { id.to_owned() } else { anew(kind) }
    };
    let id = anew("msg");
    Some(match entry {
        HistoryEntry::System { text } | HistoryEntry::Summary { text } => {
            message_item(&id, "developer", &[ContentPart::text(text.clone())])
        }
        HistoryEntry::User { content } => message_item(&id, "user", content),
        HistoryEntry::Assistant { id, text, .. } => json!({
            "id": named("msg", id.as_str()), "type": "message", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }],
        }),
        HistoryEntry::Call { call_id, name, arguments, .. } => json!({
            "id": named("fc", call_id.item_id("fc").as_str()), "type": "function_call", "call_id": call_id, "name": name,
            "arguments": arguments, "status": "completed",
        }),
        HistoryEntry::Result { call_id, content, status } => {
            function_output_item(&named("fco", call_id.item_id("fco").as_str()), call_id.as_str(), content, *status)
        }
        HistoryEntry::Reasoning { .. } | HistoryEntry::Hosted { .. } | HistoryEntry::GeneratedImages { .. } => {
            return None;
        }
    })
}

fn input_message_item(message_said: &InputMessage) -> Value {
    let role = match message_said.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "developer",
    };
    message_item(message_said.id.as_str(), role, &message_said.content)
}

fn message_item(id: &str, role: &str, content: &[ContentPart]) -> Value {
    let content: Vec<Value> = content.iter().map(content_part).collect();
    json!({ "id": id, "type": "message", "role": role, "status": "completed", "content": content })
}

fn content_part(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text, .. } => json!({ "type": "input_text", "text": text }),
        ContentPart::ImageUrl { image_url, .. } => {
            json!({ "type": "input_image", "detail": image_url.detail_or_auto(), "image_url": image_url.url })
        }
        ContentPart::File { file } => input_file(file),
    }
}

/// A file by its name, and where it is when that can be asked.
fn input_file(file: &FileRef) -> Value {
    let mut part = json!({ "type": "input_file" });
    let field = if file.url.as_ref().is_some_and(|url| url.starts_with("data:")) { "file_data" } else { "file_url" };
    for (key, value) in [(field, file.url.as_deref()), ("filename", file.display_name())] {
        if let (Some(value), Some(part)) = (value, part.as_object_mut()) {
            part.insert(key.to_owned(), value.into());
        }
    }
    part
}

fn approval_response_item(resolved: &ApprovalResolved) -> Value {
    let decision = resolved.decisions.first();
    let approve = decision.is_some_and(|decision| decision.kind != ApprovalDecisionKind::Reject);
    let id = resolved.key.as_str().replacen("apr_", "aprr_", 1);
    json!({
        "id": id, "type": "mcp_approval_response", "approval_request_id": resolved.key, "approve": approve,
        "reason": decision.and_then(|decision| decision.message.clone()),
    })
}

/// What a tool gave that the client ran.
fn client_result_item(run: &RunFold, task: &TaskId, output_index: u32) -> Option<Value> {
    let task = run.task(task)?;
    let Item::ToolResult(result) = &task.items.get(output_index as usize)?.item else { return None };
    let (_, call) = task.call(&result.call_id)?;
    if call.kind != Some(CallKind::Client) {
        return None;
    }
    let text = plain_text(result.block_list.as_deref().unwrap_or_default());
    let status = result.status.unwrap_or(ResultStatus::Completed);
    let id = result.call_id.item_id("fco");
    Some(function_output_item(id.as_str(), result.call_id.as_str(), &[ContentPart::text(text)], status))
}

/// A text, where there is nothing else.
fn function_output_item(id: &str, call_id: &str, content: &[ContentPart], status: ResultStatus) -> Value {
    let texts: Option<Vec<&str>> = content
        .iter()
        .map(|part| match part {
            ContentPart::Text { text, .. } => Some(text.as_str()),
            ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
        })
        .collect();
    let output =
        texts.map_or_else(|| content.iter().map(content_part).collect(), |texts| Value::from(texts.join("\n")));
    let status = if status == ResultStatus::Incomplete { "incomplete" } else { "completed" };
    json!({ "id": id, "type": "function_call_output", "call_id": call_id, "output": output, "status": status })
}
