//! What a call gave, as one short text, and what did not fit into it.

use super::wire::{Artifact, ContentBlock, ToolUseStatus};
use model::error::ErrorCode;
use model::fold::{RunFold, TaskFold};
use model::item::{Block, plain_text};
use model::item::{HostedCall, Item, ItemStatus, ResultStatus, ToolCall, ToolResult};
use model::json::JsonObject;
use serde_json::Value;

/// How much of a result's text a block shows, in code points.
const CONTENT_CHARS_MAX: usize = 500;
/// The member that arguments stand in when they are no object.
const RAW_ARGUMENTS_KEY: &str = "_raw";

/// Whose a block is: the sub-agent and the call that asked for it. Nobody's is the root's.
#[derive(Clone, Copy)]
pub(super) struct BlockOwner<'a> {
    pub(super) subagent: Option<&'a str>,
    pub(super) parent_tool_use_id: Option<&'a str>,
}

impl<'a> From<&'a TaskFold> for BlockOwner<'a> {
    fn from(task: &'a TaskFold) -> Self {
        let is_child = task.spec.parent_task_id.is_some();
        Self {
            subagent: is_child.then_some(task.agent.as_str()),
            // A child's task goes by the name of the call that asked for it.
            parent_tool_use_id: is_child.then_some(task.id.as_str()),
        }
    }
}

/// A call whose arguments are whole.
pub(super) fn tool_use_block<'a>(task: &'a TaskFold, call: &'a ToolCall) -> ContentBlock<'a> {
    let BlockOwner { subagent, parent_tool_use_id } = task.into();
    let id = call.call_id.as_str();
    ContentBlock::ToolUse {
        id,
        name: &call.name,
        tool_use_id: id,
        tool_content_message: call.display_name.as_deref().unwrap_or(&call.name),
        input: parse_input(call.arguments.as_deref().unwrap_or_default()),
        subagent,
        parent_tool_use_id,
    }
}

/// A tool that the provider runs itself, as if it were one of ours.
pub(super) fn hosted_use_block<'a>(task: &'a TaskFold, call: &'a HostedCall) -> ContentBlock<'a> {
    let BlockOwner { subagent, parent_tool_use_id } = task.into();
    let id = call.id.as_str();
    let input = match &call.action {
        None | Some(Value::Null) => JsonObject::new(),
        Some(Value::Object(action)) => action.clone(),
        Some(other) => raw_object(other.clone()),
    };
    ContentBlock::ToolUse {
        id,
        name: &call.name,
        tool_use_id: id,
        tool_content_message: &call.name,
        input,
        subagent,
        parent_tool_use_id,
    }
}

/// What a call gave. `None` where the call was never shown, because its arguments broke off.
pub(super) fn tool_result_block<'a>(
    run: &'a RunFold,
    task: &'a TaskFold,
    result: &'a ToolResult,
) -> Option<ContentBlock<'a>> {
    let (_, call) = task.call(&result.call_id).filter(|(fold, _)| fold.arguments_complete)?;
    let blocks = result_blocks(run, task, result);
    let said = result_text(blocks, result);
    let content = truncate_content(result.summary.as_deref().unwrap_or(&said)).to_owned();
    let is_plain = blocks.iter().all(|block| matches!(block, Block::Text(_)));
    let artifact = match &result.artifact {
        Some(own) => Some(Artifact::Tool(own)),
        None if is_plain && content == said => None,
        None => Some(Artifact::Blocks(blocks)),
    };
    let is_good = matches!(result.status, None | Some(ResultStatus::Completed)) && result.error.is_none();
    let BlockOwner { subagent, parent_tool_use_id } = task.into();
    Some(ContentBlock::ToolResult {
        tool_use_id: result.call_id.as_str(),
        name: &call.name,
        status: if is_good { ToolUseStatus::Success } else { ToolUseStatus::Error },
        content,
        artifact,
        subagent,
        parent_tool_use_id,
    })
}

/// What a tool of the provider's gave.
pub(super) fn hosted_result_block<'a>(task: &'a TaskFold, call: &'a HostedCall) -> ContentBlock<'a> {
    let blocks = call.block_list.as_deref().unwrap_or_default();
    let said = plain_text(blocks);
    let content = truncate_content(&said).to_owned();
    let is_plain = blocks.iter().all(|block| matches!(block, Block::Text(_)));
    let BlockOwner { subagent, parent_tool_use_id } = task.into();
    ContentBlock::ToolResult {
        tool_use_id: call.id.as_str(),
        name: &call.name,
        status: if matches!(call.status, None | Some(ItemStatus::Completed)) {
            ToolUseStatus::Success
        } else {
            ToolUseStatus::Error
        },
        artifact: (!is_plain || content != said).then_some(Artifact::Blocks(blocks)),
        content,
        subagent,
        parent_tool_use_id,
    }
}

/// What people see of a result: its own blocks, or the last message of the sub-agent that it is the result of.
fn result_blocks<'a>(run: &'a RunFold, task: &TaskFold, result: &'a ToolResult) -> &'a [Block] {
    let child =
        run.task(&result.call_id.child_task_id()).filter(|child| child.spec.parent_task_id.as_ref() == Some(&task.id));
    let Some(child) = child else { return result.block_list.as_deref().unwrap_or_default() };
    let said = child.items.iter().rev().filter(|fold| !fold.superseded);
    let mut messages = said.filter_map(|fold| match &fold.item {
        Item::Message(message) => Some(message.block_list.as_deref().unwrap_or_default()),
        _ => None,
    });
    messages.find(|blocks| !plain_text(blocks).is_empty()).unwrap_or_default()
}

/// A result in words. Where there are none, what went wrong.
fn result_text(blocks: &[Block], result: &ToolResult) -> String {
    let text = plain_text(blocks);
    match &result.error {
        // A person's no: the words alone would read like the tool's.
        Some(error) if error.has_code(ErrorCode::Rejected) => format!("Rejected: {}", error.message),
        Some(error) if text.is_empty() => error.message.clone(),
        _ => text,
    }
}

fn truncate_content(text: &str) -> &str {
    text.char_indices().nth(CONTENT_CHARS_MAX).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Arguments as an object, whatever the model wrote.
fn parse_input(arguments: &str) -> JsonObject {
    serde_json::from_str(arguments).unwrap_or_else(|_| raw_object(Value::from(arguments)))
}

fn raw_object(value: Value) -> JsonObject {
    JsonObject::from_iter([(RAW_ARGUMENTS_KEY.to_owned(), value)])
}
