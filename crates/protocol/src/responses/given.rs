//! What a run was given by its clients, as items: the history that they brought, what they said, and what they answered.

use crate::reading::Reading;
use model::block::{Part, plain_text};
use model::event::{Actor, ApprovalResolved, DecisionKind, Event, InputMessage};
use model::fold::RunFold;
use model::history::Entry;
use model::item::{CallKind, Item, ResultStatus, Role};
use model::{Record, TaskId};
use serde_json::{Value, json};

/// Reads what a run was given, record by record.
#[derive(Clone, Debug, Default)]
pub struct Given {
    reading: Reading,
}

impl Given {
    /// The items that this record gives the run.
    pub fn take(&mut self, record: &Record) -> Vec<Value> {
        let mut items = Vec::new();
        self.reading.take(record, |run, event| match event {
            Event::Created(created) if created.task.parent_task_id.is_none() => {
                let before = run.root().and_then(|root| root.before.as_ref());
                let entries = before.map_or(&[][..], |before| &before.entries);
                let suffix = created.task_id.suffix();
                items.extend(entries.iter().enumerate().filter_map(|(place, entry)| brought(suffix, place, entry)));
                items.extend(created.task.input.iter().map(said));
            }
            Event::InputAdded(added) if is_root(run, &added.task_id) => items.extend(added.input.iter().map(said)),
            Event::ApprovalResolved(resolved) if resolved.by == Actor::User => items.push(decided(resolved)),
            Event::ItemDone(done) => items.extend(answered(run, &done.task_id, done.output_index)),
            _ => {}
        });
        items
    }
}

fn is_root(run: &RunFold, task: &TaskId) -> bool {
    run.root().is_some_and(|root| root.id == *task)
}

/// Something of a history that a client brought.
fn brought(suffix: &str, place: usize, entry: &Entry) -> Option<Value> {
    let id = format!("msg_{suffix}b{place}");
    Some(match entry {
        Entry::System { text } | Entry::Summary { text } => message(&id, "developer", &[Part::text(text.clone())]),
        Entry::User { content } => message(&id, "user", content),
        Entry::Assistant { id, text, .. } => json!({
            "id": id, "type": "message", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }],
        }),
        Entry::Call { call_id, name, arguments, .. } => json!({
            "id": call_id.sibling("fc"), "type": "function_call", "call_id": call_id, "name": name,
            "arguments": arguments, "status": "completed",
        }),
        Entry::Result { call_id, content, status } => output(call_id.as_str(), content, *status),
        Entry::Reasoning { .. } | Entry::Hosted { .. } => return None,
    })
}

fn said(message_said: &InputMessage) -> Value {
    let role = match message_said.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "developer",
    };
    message(message_said.id.as_str(), role, &message_said.content)
}

fn message(id: &str, role: &str, content: &[Part]) -> Value {
    let content: Vec<Value> = content.iter().map(part).collect();
    json!({ "id": id, "type": "message", "role": role, "status": "completed", "content": content })
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text { text, .. } => json!({ "type": "input_text", "text": text }),
        Part::ImageUrl { image_url, .. } => {
            json!({ "type": "input_image", "detail": "auto", "image_url": image_url.url })
        }
        Part::File { file } => json!({ "type": "input_file", "file_url": file.url, "filename": file.path }),
    }
}

fn decided(resolved: &ApprovalResolved) -> Value {
    let decision = resolved.decisions.first();
    let approve = decision.is_some_and(|decision| decision.kind != DecisionKind::Reject);
    let id = resolved.key.as_str().replacen("apr_", "aprr_", 1);
    json!({
        "id": id, "type": "mcp_approval_response", "approval_request_id": resolved.key, "approve": approve,
        "reason": decision.and_then(|decision| decision.message.clone()),
    })
}

/// What a tool gave that the client ran.
fn answered(run: &RunFold, task: &TaskId, output_index: u32) -> Option<Value> {
    let task = run.task(task)?;
    let Item::ToolResult(result) = &task.items.get(output_index as usize)?.item else { return None };
    let (_, call) = task.call(&result.call_id)?;
    if call.kind != Some(CallKind::Client) {
        return None;
    }
    let text = plain_text(result.block_list.as_deref().unwrap_or_default());
    let status = result.status.unwrap_or(ResultStatus::Completed);
    Some(output(result.call_id.as_str(), &[Part::text(text)], status))
}

fn output(call_id: &str, content: &[Part], status: ResultStatus) -> Value {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            Part::ImageUrl { .. } | Part::File { .. } => None,
        })
        .collect();
    let status = if status == ResultStatus::Incomplete { "incomplete" } else { "completed" };
    json!({
        "id": call_id.replacen("call_", "fco_", 1), "type": "function_call_output", "call_id": call_id,
        "output": texts.join("\n"), "status": status,
    })
}
