//! The messages of a run, for clients that read them later.

use super::output::find_awaited_result;
use super::wire::{
    HistoryMessage, ImageAttachment, MessageRole, ToolAgentOutput, ToolMetadata, WorkerAgentOutput, WorkerMetadata,
    to_object,
};
use crate::event_groups::{item_progress_events, native_only_events, terminal_events};
use crate::run_reader::RunReader;
use model::content::ContentPart;
use model::event::{Event, InputMessage};
use model::fold::{RunFold, TaskFold};
use model::item::Item;
use model::json::{ExactObject, ExactValue};
use model::{ItemId, Record};

/// The conversation of one run: the messages of the client and of the root, the results of the root's calls, and those of
/// sub-agents' calls that waited for a decision or for the client.
#[derive(Debug, Default)]
pub struct MessageHistory {
    reader: RunReader,
    messages: Vec<HistoryMessage>,
}

impl MessageHistory {
    /// Applies the next record of the run.
    pub fn read_record(&mut self, record: &Record) {
        let Self { reader, messages } = self;
        reader.read_record(record, |run, event| {
            let Some(root) = run.root().filter(|root| event.task_id() == Some(&root.id)) else {
                messages.extend(sub_agent_message(record, run, event));
                return;
            };
            match event {
                Event::Created(e) => {
                    let input = e.task.input.iter();
                    messages.extend(input.map(|message| input_message(record, message, e.task.metadata.clone())));
                }
                Event::InputAdded(e) => {
                    let input = e.input.iter();
                    messages.extend(input.map(|message| input_message(record, message, ExactObject::new())));
                }
                Event::ItemDone(e) => messages.extend(output_message(record, run, root, e.output_index)),
                // The next attempt of the turn writes these again.
                Event::Recovered(e) => messages.retain(|message| !e.cut.contains(&message.id)),
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
                | Event::ApprovalResolved(_)
                | Event::Paused(_)
                | Event::Resumed(_) => {}
            }
        });
    }

    /// Oldest first.
    pub fn into_messages(self) -> Vec<HistoryMessage> {
        self.messages
    }
}

fn input_message(record: &Record, message: &InputMessage, mut metadata: ExactObject) -> HistoryMessage {
    let mut texts: Vec<&str> = Vec::new();
    let mut attachments: Vec<ExactValue> = Vec::new();
    for part in &message.content {
        match part {
            ContentPart::Text { text, .. } => texts.push(text),
            ContentPart::ImageUrl { image_url, .. } => {
                attachments.push(ExactValue::Object(to_object(&ImageAttachment { url: &image_url.url })));
            }
            ContentPart::File { file } => attachments.push(ExactValue::Object(to_object(file))),
        }
    }
    if !attachments.is_empty() {
        metadata.insert("attachments".to_owned(), ExactValue::Array(attachments));
    }
    new_message(record, &message.id, message.role.into(), texts.join("\n"), metadata)
}

fn output_message(record: &Record, run: &RunFold, root: &TaskFold, output_index: u32) -> Option<HistoryMessage> {
    match &root.items.get(output_index as usize)?.item {
        Item::Message(message) => {
            let output = WorkerAgentOutput::from_message(message);
            let stage = message.agent.as_deref().unwrap_or(&root.agent);
            let content = output.answer.clone();
            let metadata = to_object(&WorkerMetadata { stage, worker_agent_output: &output });
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

/// The result of a sub-agent's call that waited for a decision or for the client.
fn sub_agent_message(record: &Record, run: &RunFold, event: &Event) -> Option<HistoryMessage> {
    let Event::ItemDone(e) = event else { return None };
    let (task, result) = find_awaited_result(run, &e.task_id, e.output_index)?;
    Some(tool_message(record, &result.id, &ToolAgentOutput::from_result(run, task, result)))
}

fn tool_message(record: &Record, id: &ItemId, output: &ToolAgentOutput) -> HistoryMessage {
    let content = output.result_summary.clone();
    let metadata = to_object(&ToolMetadata { tool_agent_output: output, tool_call_id: &output.tool_call_id });
    new_message(record, id, MessageRole::Tool, content, metadata)
}

fn new_message(
    record: &Record,
    id: &ItemId,
    role: MessageRole,
    content: String,
    mut metadata: ExactObject,
) -> HistoryMessage {
    metadata.insert("runId".to_owned(), ExactValue::String(record.run.as_str().to_owned()));
    HistoryMessage { id: id.clone(), seq: record.seq, role, content, metadata, at: record.at }
}
