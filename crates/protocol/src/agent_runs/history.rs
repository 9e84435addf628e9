//! What was said in a run, message by message.

use super::payload::{ToolAgentOutput, WorkerAgentOutput};
use crate::run_reader::RunReader;
use model::content::ContentPart;
use model::event::{Event, InputMessage};
use model::fold::{RunFold, TaskFold};
use model::item::{Item, Role};
use model::json::JsonObject;
use model::{ItemId, Millis, Record, Seq};
use serde::Serialize;
use serde_json::{Value, json};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryMessage {
    /// Its name.
    pub id: ItemId,
    /// The record that finished it: whoever has the message may read on from there.
    pub seq: Seq,
    /// Who speaks.
    pub role: MessageRole,
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
pub enum MessageRole {
    /// A person.
    User,
    /// The model.
    Assistant,
    /// The operator.
    System,
    /// A tool, or a sub-agent.
    Tool,
}

impl From<Role> for MessageRole {
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
pub struct MessageHistory {
    reader: RunReader,
    messages: Vec<HistoryMessage>,
}

impl MessageHistory {
    /// Takes in the next record of the run.
    pub fn read_record(&mut self, record: &Record) {
        let Self { reader: reading, messages: said } = self;
        reading.read_record(record, |run, event| {
            let Some(root) = run.root().filter(|root| event.task_id() == Some(&root.id)) else { return };
            match event {
                Event::Created(e) => {
                    said.extend(
                        e.task.input.iter().map(|message| input_message(record, message, e.task.metadata.clone())),
                    );
                }
                Event::InputAdded(e) => {
                    said.extend(e.input.iter().map(|message| input_message(record, message, JsonObject::new())));
                }
                Event::ItemDone(e) => said.extend(output_message(record, run, root, e.output_index)),
                // What was cut by a crash is said again by the turn that is done again.
                Event::Recovered(e) => said.retain(|said| !e.cut.contains(&said.id)),
                _ => {}
            }
        });
    }

    /// The messages, oldest first.
    #[must_use]
    pub fn into_messages(self) -> Vec<HistoryMessage> {
        self.messages
    }
}

fn input_message(record: &Record, message: &InputMessage, metadata: JsonObject) -> HistoryMessage {
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
    new_message(record, &message.id, message.role.into(), texts.join("\n"), metadata)
}

fn output_message(record: &Record, run: &RunFold, root: &TaskFold, output_index: u32) -> Option<HistoryMessage> {
    match &root.items.get(output_index as usize)?.item {
        Item::Message(message) => {
            let output = WorkerAgentOutput::from_message(message);
            let stage = message.agent.as_deref().unwrap_or(&root.agent);
            let content = output.answer.clone();
            let metadata = into_object(json!({ "stage": stage, "workerAgentOutput": output }));
            Some(new_message(record, &message.id, message.role.into(), content, metadata))
        }
        Item::ToolResult(result) => {
            let output = ToolAgentOutput::from_result(run, root, result);
            Some(tool_message(record, &result.id, &output))
        }
        Item::HostedCall(item) => Some(tool_message(record, &item.id, &ToolAgentOutput::from_hosted_call(item))),
        Item::Reasoning(_) | Item::ToolCall(_) | Item::FileProcessing(_) => None,
    }
}

fn tool_message(record: &Record, id: &ItemId, output: &ToolAgentOutput) -> HistoryMessage {
    let content = output.result_summary.clone();
    let metadata = into_object(json!({ "toolCallId": output.tool_call_id, "toolAgentOutput": output }));
    new_message(record, id, MessageRole::Tool, content, metadata)
}

fn new_message(
    record: &Record,
    id: &ItemId,
    role: MessageRole,
    content: String,
    mut metadata: JsonObject,
) -> HistoryMessage {
    metadata.insert("runId".to_owned(), json!(record.run));
    HistoryMessage { id: id.clone(), seq: record.seq, role, content, metadata, at: record.at }
}

fn into_object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
