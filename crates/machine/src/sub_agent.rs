//! Sub-agents: a call becomes a task of its own, and its end becomes the call's result.
//!
//! What the child does is passed through live under its own `task_id` and fills the parent's result by itself; what the
//! parent's model reads of it is the child's last message, the groups that the message cites, and the pictures it drew.

use crate::state::RunState;
use crate::{MachineOutput, tool_result};
use model::content::{Annotation, ContentPart};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, InputMessage, ItemEvent, TaskCreated, TaskSpec, TaskStarted, ToolStarted};
use model::fold::TaskFold;
use model::item::Block;
use model::item::{Item, ResultStatus, Role, ToolCall};
use model::limits::RECORD_BYTES_MAX;
use model::record::PrivatePayload;
use model::task::TaskStatus;
use model::thread::generated_images;
use model::tool::ToolOutput;
use model::{CallId, ItemId, TaskId, reference};
use serde_json::Value;

/// The arguments that may hold what a sub-agent is to do, in this order; else all of them are.
const PROMPT_ARGUMENTS: [&str; 3] = ["prompt", "input", "task"];

/// So many pictures of a sub-agent are shown to whoever asked it.
const SUB_AGENT_IMAGES_MAX: usize = 16;

/// Why an agent cannot be asked now.
pub(crate) fn sub_agent_refusal(run: &RunState, task: &TaskFold, agent: &str) -> Option<ToolOutput> {
    let limits = &run.definitions.limits;
    if !run.definitions.agents.contains_key(agent) {
        return Some(ToolOutput::failed(ErrorCode::UnknownAgent, format!("There is no agent `{agent}`.")));
    }
    if sub_agent_depth(run, task) >= limits.depth_max {
        let message = format!("Agents may ask agents {} deep: this one answers itself.", limits.depth_max);
        return Some(ToolOutput::failed(ErrorCode::DepthLimit, message));
    }
    let descendants = run.fold.tasks.len().saturating_sub(1);
    let message = || format!("A run may ask {} agents, and has.", limits.descendants_max);
    (descendants >= limits.descendants_max).then(|| ToolOutput::failed(ErrorCode::DescendantsLimit, message()))
}

fn sub_agent_depth(run: &RunState, task: &TaskFold) -> u32 {
    let mut depth = 0;
    let mut at = task;
    while let Some(parent) = at.spec.parent_task_id.as_ref().and_then(|id| run.fold.task(id)) {
        (depth, at) = (depth + 1, parent);
    }
    depth
}

/// Has the sub-agent of this call ended?
pub(crate) fn has_sub_agent_ended(run: &RunState, call: &ToolCall) -> bool {
    run.fold.task(&call.call_id.child_task_id()).is_some_and(|child| child.status.is_terminal())
}

/// A call becomes a task of its own.
pub(crate) fn start_sub_agent(
    run: &mut RunState,
    call: &CallId,
    agent: &str,
    arguments: String,
    out: &mut MachineOutput,
) {
    let Some(parent) = run.task_of_call(call) else { return };
    let (parent_id, parent_agent) = (parent.id.clone(), parent.agent.clone());
    let index = u32::try_from(parent.items.len()).unwrap_or(u32::MAX);
    let attempt = parent.call(call).map_or(0, |(fold, _)| fold.attempts) + 1;
    let input = vec![prompt_message(call, &arguments)];
    let started = ToolStarted { task_id: parent_id.clone(), call_id: call.clone(), arguments, attempt };
    out.emit(run, Event::ToolStarted(started));
    let item = Item::ToolResult(tool_result::new_open_result(call, Some(parent_agent)));
    out.emit(run, Event::ItemAdded(ItemEvent { task_id: parent_id.clone(), output_index: index, item }));
    let model = run.definitions.agents.get(agent).and_then(|agent| agent.models.first().cloned());
    let spec = TaskSpec {
        thread_id: run.thread.clone(),
        agent: agent.to_owned(),
        model: model.unwrap_or_default(),
        input,
        parent_task_id: Some(parent_id),
        previous: None,
        tools: Vec::new(),
        metadata: model::json::JsonObject::new(),
        display_mode: run.fold.root().map(|root| root.spec.display_mode).unwrap_or_default(),
        origin: None,
        client: None,
    };
    let task_id = call.child_task_id();
    out.emit(run, Event::Created(TaskCreated { task_id: task_id.clone(), task: Box::new(spec) }));
    out.emit(run, Event::Started(TaskStarted { task_id }));
}

fn prompt_message(call: &CallId, arguments: &str) -> InputMessage {
    let object: Value = serde_json::from_str(arguments).unwrap_or_default();
    let given = PROMPT_ARGUMENTS.iter().find_map(|name| object.get(name).and_then(Value::as_str));
    let said = given.filter(|words| !words.trim().is_empty());
    let content = vec![ContentPart::text(said.unwrap_or(arguments))];
    InputMessage { id: ItemId::from(format!("{}_0", call.item_id("msg"))), role: Role::User, content }
}

/// The sub-agent has ended: so has the call.
pub(crate) fn finish_sub_agent(run: &mut RunState, call: &CallId, out: &mut MachineOutput) {
    let Some(child) = run.fold.task(&call.child_task_id()) else { return };
    let (status, error) = sub_agent_outcome(child);
    let content = Some(sub_agent_content(run, child, error.as_ref()));
    let Some(parent) = run.task_of_call(call) else { return };
    let Some((index, fold)) = parent.result(call).filter(|(_, fold)| !fold.done) else { return };
    let Item::ToolResult(mut item) = fold.item.clone() else { return };
    let (task_id, output_index) = (parent.id.clone(), u32::try_from(index).unwrap_or(u32::MAX));
    // The child's own events have filled it.
    item.block_list = None;
    item.status = Some(status);
    item.error = error;
    let event = ItemEvent { task_id, output_index, item: Item::ToolResult(item) };
    out.emit_with_private(run, Event::ItemDone(event), Some(PrivatePayload { content, ..PrivatePayload::default() }));
}

/// What the parent's model reads: the groups that the child cites, what it said last, why it stopped, and what it drew. It
/// stands in one record and nowhere else, so what does not fit is left out.
fn sub_agent_content(run: &RunState, child: &TaskFold, error: Option<&ErrorInfo>) -> Vec<ContentPart> {
    let said = last_message(child).map(|(text, _)| text);
    let words = said.into_iter().chain(error.map(|error| error.message.clone()));
    let words = words.filter(|words| !words.trim().is_empty()).map(|words| ContentPart::text(truncate_text(words)));
    let mut own = reference::wrap_reference_groups(words.collect());
    let items = child.items.iter().filter(|fold| !fold.superseded);
    own.extend(items.flat_map(|fold| generated_images(&fold.item)).take(SUB_AGENT_IMAGES_MAX));
    if own.is_empty() {
        return vec![ContentPart::text("(no answer)")];
    }
    let mut content = cited_parts(run, child);
    content.extend(own.iter().cloned());
    if tool_result::json_size(&content) <= RECORD_BYTES_MAX / 2 { content } else { own }
}

/// A text, or so much of it that two of them fit a record.
fn truncate_text(mut words: String) -> String {
    let is_long = |words: &String| tool_result::json_size(words) > RECORD_BYTES_MAX / 4;
    if is_long(&words) {
        while is_long(&words) {
            words.truncate(words.floor_char_boundary(words.len() / 4 * 3));
        }
        words.push_str(" […]");
    }
    words
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

/// What the child said last, and the groups that it cites.
fn last_message(child: &TaskFold) -> Option<(String, Vec<u32>)> {
    let said = child.items.iter().rev().filter(|fold| !fold.superseded);
    said.filter_map(|fold| match &fold.item {
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

/// The groups that the child's last message cites, as its results gave them.
fn cited_parts(run: &RunState, child: &TaskFold) -> Vec<ContentPart> {
    let mut numbers = last_message(child).map(|(_, cited)| cited).unwrap_or_default();
    numbers.sort_unstable();
    numbers.dedup();
    let is_below = |task: &&TaskFold| is_in_subtree(run, &task.id, &child.id);
    let results = run.fold.tasks.iter().filter(is_below).flat_map(|task| &task.items);
    let results: Vec<&[ContentPart]> = results.filter_map(|fold| fold.content.as_deref()).collect();
    let parts_of = |number: &u32| {
        let parts = results.iter().flat_map(|content| content.iter());
        let own = parts.filter(|part| reference::reference_group(part) == Some(*number)).cloned().collect::<Vec<_>>();
        // A group that came by way of a deeper agent stands in more than one result.
        let close = own.iter().position(reference::is_group_end).map_or(own.len(), |place| place + 1);
        own.into_iter().take(close).collect::<Vec<_>>()
    };
    numbers.iter().flat_map(parts_of).collect()
}

/// Is this task that one, or was it asked for by way of it?
pub(crate) fn is_in_subtree(run: &RunState, task: &TaskId, ancestor: &TaskId) -> bool {
    let mut at = run.fold.task(task);
    while let Some(task) = at {
        if task.id == *ancestor {
            return true;
        }
        at = task.spec.parent_task_id.as_ref().and_then(|parent| run.fold.task(parent));
    }
    false
}
