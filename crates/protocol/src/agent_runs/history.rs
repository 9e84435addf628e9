//! What was said in a run, message by message.

use super::payload::{ToolAgentOutput, WorkerAgentOutput};
use crate::reading::Reading;
use model::block::{ContentPart, JsonObject};
use model::event::{Event, InputMessage};
use model::fold::{RunFold, TaskFold};
use model::item::{Item, Role};
use model::{ItemId, Millis, Record, Seq};
use serde::Serialize;
use serde_json::{Value, json};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Said {
    /// Its name.
    pub id: ItemId,
    /// The record that finished it: whoever has the message may read on from there.
    pub seq: Seq,
    /// Who speaks.
    pub role: Speaker,
    /// What.
    pub content: String,
    /// More, by name.
    #[serde(skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
    /// When that record was written.
    #[serde(skip)]
    pub at: Millis,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// A person.
    User,
    /// The model.
    Assistant,
    /// The operator.
    System,
    /// A tool, or a sub-agent.
    Tool,
}

impl From<Role> for Speaker {
    fn from(role: Role) -> Self {
        match role {
            Role::User => Self::User,
            Role::Assistant => Self::Assistant,
            Role::System => Self::System,
        }
    }
}

/// The conversation of one run: what people said to it, what its root said, and what each of the root's calls gave.
#[derive(Debug, Default)]
pub struct Conversation {
    reading: Reading,
    said: Vec<Said>,
}

impl Conversation {
    /// Takes in the next record of the run.
    pub fn take(&mut self, record: &Record) {
        let Self { reading, said } = self;
        reading.take(record, |run, event| {
            let Some(root) = run.root().filter(|root| event.task_id() == Some(&root.id)) else { return };
            match event {
                Event::Created(e) => {
                    said.extend(
                        e.task.input.iter().map(|message| from_person(record, message, e.task.metadata.clone())),
                    );
                }
                Event::InputAdded(e) => {
                    said.extend(e.input.iter().map(|message| from_person(record, message, JsonObject::new())));
                }
                Event::ItemDone(e) => said.extend(from_root(record, run, root, e.output_index)),
                // What was cut by a crash is said again by the turn that is done again.
                Event::Recovered(e) => said.retain(|said| !e.cut.contains(&said.id)),
                _ => {}
            }
        });
    }

    /// The messages, oldest first.
    #[must_use]
    pub fn into_messages(self) -> Vec<Said> {
        self.said
    }
}

fn from_person(record: &Record, message: &InputMessage, metadata: JsonObject) -> Said {
    let mut texts: Vec<&str> = Vec::new();
    let mut attachments: Vec<Value> = Vec::new();
    for part in &message.content {
        match part {
            ContentPart::Text { text, .. } => texts.push(text),
            ContentPart::ImageUrl { image_url, .. } => attachments.push(json!({ "url": image_url.url })),
            ContentPart::File { file } => attachments.push(json!(file)),
        }
    }
    let mut metadata = metadata;
    if !attachments.is_empty() {
        metadata.insert("attachments".to_owned(), Value::Array(attachments));
    }
    said(record, &message.id, message.role.into(), texts.join("\n"), metadata)
}

fn from_root(record: &Record, run: &RunFold, root: &TaskFold, output_index: u32) -> Option<Said> {
    match &root.items.get(output_index as usize)?.item {
        Item::Message(message) => {
            let output = WorkerAgentOutput::of(message);
            let stage = message.agent.as_deref().unwrap_or(&root.agent);
            let content = output.answer.clone();
            let metadata = object(json!({ "stage": stage, "workerAgentOutput": output }));
            Some(said(record, &message.id, message.role.into(), content, metadata))
        }
        Item::ToolResult(result) => {
            let output = ToolAgentOutput::of(run, root, result);
            Some(from_tool(record, &result.id, &output))
        }
        Item::HostedCall(item) => Some(from_tool(record, &item.id, &ToolAgentOutput::hosted(item))),
        Item::Reasoning(_) | Item::ToolCall(_) | Item::FileProcessing(_) => None,
    }
}

fn from_tool(record: &Record, id: &ItemId, output: &ToolAgentOutput) -> Said {
    let content = output.result_summary.clone();
    let metadata = object(json!({ "toolCallId": output.tool_call_id, "toolAgentOutput": output }));
    said(record, id, Speaker::Tool, content, metadata)
}

fn said(record: &Record, id: &ItemId, role: Speaker, content: String, mut metadata: JsonObject) -> Said {
    metadata.insert("runId".to_owned(), json!(record.run));
    Said { id: id.clone(), seq: record.seq, role, content, metadata, at: record.at }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
