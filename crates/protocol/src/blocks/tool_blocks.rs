//! The blocks of calls and their results. A result is one short text, and an artifact with the rest.

use super::wire::{Artifact, ContentBlock, ToolUseStatus};
use crate::hosted_calls::{hosted_arguments, hosted_call_succeeded, hosted_output_text, raw_object};
use crate::tool_results::{latest_messages, subagent_of_result};
use model::error::ErrorCode;
use model::fold::{RunFold, TaskFold};
use model::item::{Block, HostedCall, ResultStatus, ToolCall, ToolResult, plain_text};
use model::json::{ExactObject, parse_exact_object};
use serde_json::Value;

/// The length of a result's text, in code points.
const CONTENT_CHARS_MAX: usize = 500;

/// A call whose arguments are complete.
pub(super) fn tool_use_block<'a>(task: &'a TaskFold, call: &'a ToolCall) -> ContentBlock<'a> {
    let id = call.call_id.as_str();
    ContentBlock::ToolUse {
        id,
        name: call.own_tool_name(),
        tool_use_id: id,
        tool_content_message: call.display_name.as_deref().unwrap_or_else(|| call.own_tool_name()),
        server_label: call.server_label.as_deref(),
        input: parse_input(call.arguments.as_deref().unwrap_or_default()),
        owner: task.into(),
    }
}

/// A hosted call, in the shape of a tool call.
pub(super) fn hosted_use_block<'a>(task: &'a TaskFold, call: &'a HostedCall) -> ContentBlock<'a> {
    let id = call.id.as_str();
    ContentBlock::ToolUse {
        id,
        name: call.tool_name(),
        tool_use_id: id,
        tool_content_message: call.tool_name(),
        server_label: call.server_label(),
        input: hosted_arguments(call),
        owner: task.into(),
    }
}

/// The result of a call. `None` if the call was never sent because its arguments are incomplete.
pub(super) fn tool_result_block<'a>(
    run: &'a RunFold,
    task: &'a TaskFold,
    result: &'a ToolResult,
) -> Option<ContentBlock<'a>> {
    let (_, call) = task.call(&result.call_id).filter(|(fold, _)| fold.arguments_complete)?;
    let blocks = result_blocks(run, task, result);
    let text = result_text(blocks, result);
    let content = truncate_content(result.summary.as_deref().unwrap_or(&text)).to_owned();
    let is_plain = blocks.iter().all(|block| matches!(block, Block::Text(_)));
    let artifact = match &result.artifact {
        Some(artifact) => Some(Artifact::Tool(artifact)),
        None if is_plain && content == text => None,
        None => Some(Artifact::Blocks(blocks)),
    };
    let succeeded = matches!(result.status, None | Some(ResultStatus::Completed)) && result.error.is_none();
    Some(ContentBlock::ToolResult {
        tool_use_id: result.call_id.as_str(),
        name: call.own_tool_name(),
        status: if succeeded { ToolUseStatus::Success } else { ToolUseStatus::Error },
        content,
        artifact,
        input: call.original_arguments.as_ref().and(call.arguments.as_deref()).map(parse_input),
        owner: task.into(),
    })
}

/// The result of a hosted call. An output that is not plain text is in the artifact as the provider sent it.
pub(super) fn hosted_result_block<'a>(task: &'a TaskFold, call: &'a HostedCall) -> ContentBlock<'a> {
    let (blocks, output) = (call.block_list.as_deref().unwrap_or_default(), call.output());
    let text = hosted_output_text(call);
    let content = truncate_content(&text).to_owned();
    let is_plain = blocks.iter().all(|block| matches!(block, Block::Text(_))) && output.is_none_or(Value::is_string);
    ContentBlock::ToolResult {
        tool_use_id: call.id.as_str(),
        name: call.tool_name(),
        status: if hosted_call_succeeded(call) { ToolUseStatus::Success } else { ToolUseStatus::Error },
        artifact: (!is_plain || content != text).then_some(Artifact::Hosted { blocks, output }),
        content,
        input: None,
        owner: task.into(),
    }
}

/// The blocks of a result; of a sub-agent, those of its last message that has text.
fn result_blocks<'a>(run: &'a RunFold, task: &TaskFold, result: &'a ToolResult) -> &'a [Block] {
    let Some(child) = subagent_of_result(run, task, result) else {
        return result.block_list.as_deref().unwrap_or_default();
    };
    let mut messages = latest_messages(child).map(|message| message.block_list.as_deref().unwrap_or_default());
    messages.find(|blocks| !plain_text(blocks).is_empty()).unwrap_or_default()
}

/// The text of a result, or of its error if it has none.
fn result_text(blocks: &[Block], result: &ToolResult) -> String {
    let text = plain_text(blocks);
    match &result.error {
        // The reason alone would read like the output of the tool.
        Some(error) if error.has_code(ErrorCode::Rejected) => format!("Rejected: {}", error.message),
        Some(error) if text.is_empty() => error.message.clone(),
        _ => text,
    }
}

fn truncate_content(text: &str) -> &str {
    text.char_indices().nth(CONTENT_CHARS_MAX).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Arguments as an object, even if the model wrote something else.
fn parse_input(arguments: &str) -> ExactObject {
    parse_exact_object(arguments).unwrap_or_else(|_| raw_object(arguments))
}
