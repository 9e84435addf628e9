//! Sub-agents: a call becomes a task of its own, and its end becomes the call's result.
//!
//! Events of the child appear live under its own `task_id` and fill the blocks of the parent's result. The parent's model
//! reads the child's last message, the reference groups that the message cites, and the images that it generated.

use crate::output::{RunWriter, json_size};
use crate::positions::{next_output_index, to_output_index};
use crate::state::RunState;
use crate::{open_results, task_tree, tool_execution};
use model::content::{Annotation, ContentPart};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, InputMessage, ItemEvent, TaskCreated, TaskSpec, TaskStarted};
use model::fold::TaskFold;
use model::item::Block;
use model::item::{Item, ResultStatus, Role};
use model::limits::RECORD_BYTES_MAX;
use model::record::PrivatePayload;
use model::task::TaskStatus;
use model::thread::generated_images;
use model::{CallId, ItemId, reference};
use serde_json::Value;

/// The arguments that may hold the prompt of a sub-agent, in this order; without one, the prompt is all arguments as JSON.
const PROMPT_ARGUMENTS: [&str; 3] = ["prompt", "input", "task"];

/// The most images of a sub-agent that the parent's model is given.
const SUB_AGENT_IMAGES_MAX: usize = 16;

/// A call becomes a task of its own.
pub(crate) fn start_sub_agent(writer: &mut RunWriter<'_>, call: &CallId, agent: &str, arguments: String) {
    let Some(parent) = writer.run.task_of_call(call) else { return };
    let (parent_id, parent_agent) = (parent.id.clone(), parent.agent.clone());
    let output_index = next_output_index(parent);
    let input = vec![prompt_message(call, &arguments)];
    tool_execution::emit_tool_started(writer, &parent_id, call, arguments, None);
    let item = Item::ToolResult(open_results::new_open_result(call, Some(parent_agent)));
    writer.emit(Event::ItemAdded(Box::new(ItemEvent { task_id: parent_id.clone(), output_index, item })));
    let model = writer.run.definitions.agents.get(agent).and_then(|agent| agent.models.first().cloned());
    let spec = TaskSpec {
        thread_id: writer.run.thread.clone(),
        agent: agent.to_owned(),
        model: model.unwrap_or_default(),
        input,
        parent_task_id: Some(parent_id),
        previous: None,
        tools: Vec::new(),
        metadata: model::json::ExactObject::new(),
        display_mode: writer.run.fold.root().map(|root| root.spec.display_mode).unwrap_or_default(),
        origin: None,
        client: None,
    };
    let task_id = call.child_task_id();
    writer.emit(Event::Created(TaskCreated { task_id: task_id.clone(), task: Box::new(spec) }));
    writer.emit(Event::Started(TaskStarted { task_id }));
}

fn prompt_message(call: &CallId, arguments: &str) -> InputMessage {
    let object: Value = serde_json::from_str(arguments).unwrap_or_default();
    let prompt = PROMPT_ARGUMENTS.iter().find_map(|name| object.get(name).and_then(Value::as_str));
    let prompt = prompt.filter(|text| !text.trim().is_empty());
    let content = vec![ContentPart::text(prompt.unwrap_or(arguments))];
    InputMessage { id: ItemId::from(format!("{}_0", call.item_id("msg"))), role: Role::User, content }
}

/// Answers the call of a sub-agent that has ended.
pub(crate) fn finish_sub_agent(writer: &mut RunWriter<'_>, call: &CallId) {
    let Some(child) = writer.run.fold.task(&call.child_task_id()) else { return };
    let (status, error) = sub_agent_outcome(child);
    let content = Some(sub_agent_content(writer.run, child, error.as_ref()));
    let Some(parent) = writer.run.task_of_call(call) else { return };
    let Some((index, fold)) = parent.result(call).filter(|(_, fold)| !fold.done) else { return };
    let Item::ToolResult(mut item) = fold.item.clone() else { return };
    let (task_id, output_index) = (parent.id.clone(), to_output_index(index));
    // The events of the child have filled it.
    item.block_list = None;
    item.status = Some(status);
    item.error = error;
    let event = ItemEvent { task_id, output_index, item: Item::ToolResult(item) };
    writer.emit_with_private(
        Event::ItemDone(Box::new(event)),
        Some(PrivatePayload { content, ..PrivatePayload::default() }),
    );
}

/// What the parent's model reads: the groups that the child cites, its last message, why it stopped, and its images. One
/// record has to hold it, so what does not fit is left out.
fn sub_agent_content(run: &RunState, child: &TaskFold, error: Option<&ErrorInfo>) -> Vec<ContentPart> {
    let message = last_message(child).map(|(text, _)| text);
    let texts = message.into_iter().chain(error.map(|error| error.message.clone()));
    let texts = texts.filter(|text| !text.trim().is_empty()).map(|text| ContentPart::text(truncate_text(text)));
    let mut own = reference::wrap_reference_groups(texts.collect());
    let items = child.items.iter().filter(|fold| !fold.superseded);
    own.extend(items.flat_map(|fold| generated_images(&fold.item)).take(SUB_AGENT_IMAGES_MAX));
    if own.is_empty() {
        return vec![ContentPart::text("(no answer)")];
    }
    let mut content = cited_parts(run, child);
    content.extend(own.iter().cloned());
    if json_size(&content) <= RECORD_BYTES_MAX / 2 { content } else { own }
}

/// Shortens a text so that two of them fit a record.
fn truncate_text(mut text: String) -> String {
    let is_long = |text: &String| json_size(text) > RECORD_BYTES_MAX / 4;
    if is_long(&text) {
        while is_long(&text) {
            text.truncate(text.floor_char_boundary(text.len() / 4 * 3));
        }
        text.push_str(" […]");
    }
    text
}

fn sub_agent_outcome(child: &TaskFold) -> (ResultStatus, Option<ErrorInfo>) {
    let reason = child.reason.as_deref().unwrap_or_default();
    match child.status {
        TaskStatus::Completed => (ResultStatus::Completed, None),
        TaskStatus::Failed => {
            let error = child.error.clone().unwrap_or_else(|| ErrorInfo::new(ErrorCode::Failed, "The agent failed."));
            (ResultStatus::Failed, Some(error))
        }
        TaskStatus::Incomplete => {
            let error = ErrorInfo::external(reason, format!("The agent did not finish: {reason}."));
            (ResultStatus::Incomplete, Some(error))
        }
        TaskStatus::Cancelled | TaskStatus::Queued | TaskStatus::Running | TaskStatus::Paused => {
            (ResultStatus::Incomplete, Some(ErrorInfo::new(ErrorCode::Cancelled, "The agent was cancelled.")))
        }
    }
}

/// The last message of the child, and the groups that it cites.
fn last_message(child: &TaskFold) -> Option<(String, Vec<u32>)> {
    let items = child.items.iter().rev().filter(|fold| !fold.superseded);
    items
        .filter_map(|fold| match &fold.item {
            Item::Message(message) => Some((message.text(), cited_references(fold.item.blocks()))),
            _ => None,
        })
        .find(|(text, _)| !text.is_empty())
}

fn cited_references(blocks: &[Block]) -> Vec<u32> {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => text.annotations.as_deref(),
        _ => None,
    });
    let cited = texts.flatten().filter_map(|annotation| match annotation {
        Annotation::ReferenceToBlock { reference_id, .. } => Some(*reference_id),
        _ => None,
    });
    cited.collect()
}

/// The groups that the last message of the child cites, as the results contain them.
fn cited_parts(run: &RunState, child: &TaskFold) -> Vec<ContentPart> {
    let mut numbers = last_message(child).map(|(_, cited)| cited).unwrap_or_default();
    numbers.sort_unstable();
    numbers.dedup();
    let is_below = |task: &&TaskFold| task_tree::is_in_subtree(run, &task.id, &child.id);
    let results = run.fold.tasks.iter().filter(is_below).flat_map(|task| &task.items);
    let results: Vec<&[ContentPart]> = results.filter_map(|fold| fold.content.as_deref()).collect();
    let parts_of = |number: &u32| {
        let parts = results.iter().flat_map(|content| content.iter());
        let own = parts.filter(|part| reference::reference_group(part) == Some(*number)).cloned().collect::<Vec<_>>();
        // A group that came from a deeper agent is part of more than one result.
        let close = own.iter().position(reference::is_group_end).map_or(own.len(), |index| index + 1);
        own.into_iter().take(close).collect::<Vec<_>>()
    };
    numbers.iter().flat_map(parts_of).collect()
}
