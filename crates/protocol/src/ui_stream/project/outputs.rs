//! The results of calls.

use super::EventProjector;
use super::calls::{CallRunner, is_client_call};
use crate::tool_results::result_text;
use crate::ui_stream::wire::UiChunk;
use model::event::{Event, Initiator};
use model::fold::{RunFold, TaskFold};
use model::item::{Block, COMPUTER_TOOL, ResultStatus, ToolCall, ToolResult, plain_text};
use model::json::{ExactValue, to_exact_value};
use serde::Serialize;
use serde_json::{Value, json};
use serde_with::skip_serializing_none;

/// Every partial output repeats the whole one. A longer one is shown when it has grown by half.
const PARTIAL_BYTES_MAX: usize = 8 * 1024;

/// The output of a call that this server answers.
#[skip_serializing_none]
#[derive(Serialize)]
pub(super) struct UiToolOutput<'a> {
    pub(super) text: String,
    pub(super) blocks: &'a [Block],
    /// Data for the front end alone.
    pub(super) artifact: Option<&'a Value>,
    /// What a provider's tool returned, in the provider's shape.
    pub(super) result: Option<&'a Value>,
}

impl<'a> EventProjector<'a, '_> {
    /// Notes that a result grows while its tool runs. A result that is written at once has whole blocks.
    pub(super) fn on_result_block_added(&mut self, result: &ToolResult, block_index: u32) {
        let is_piece = match self.record.event() {
            Event::TextAdded(_) => true,
            Event::ImageAdded(_) => block_index == 0,
            _ => false,
        };
        if let Some(known) = self.known_call(&result.call_id).filter(|known| is_piece && !known.is_client) {
            known.is_streamed = true;
        }
    }

    /// A piece of the text. It is no part of the message: each delta of an output would repeat the whole output.
    pub(super) fn show_output_delta(&mut self, result: &ToolResult, block_index: u32, delta: &str) {
        let is_streamed = self.known_call(&result.call_id).is_some_and(|known| known.is_streamed);
        if is_streamed && !delta.is_empty() {
            let data = json!({"toolCallId": result.call_id, "blockIndex": block_index, "delta": delta});
            self.push_transient("data-tool-output", data.into());
        }
    }

    /// The output so far.
    pub(super) fn show_partial_output(&mut self, task: &TaskFold, result: &ToolResult) {
        let blocks = result.block_list.as_deref().unwrap_or_default();
        let bytes = blocks_bytes(blocks);
        let Some(known) = self.known_call(&result.call_id).filter(|known| known.is_streamed) else { return };
        if known.shown_key.is_some() || bytes > PARTIAL_BYTES_MAX && bytes / 3 * 2 < known.partial_bytes {
            return;
        }
        known.partial_bytes = bytes;
        known.is_executed = true;
        self.push(&UiChunk {
            tool_call_id: Some(result.call_id.as_str()),
            output: Some(tool_output(self.run, task, result)),
            preliminary: Some(true),
            provider_executed: Some(true),
            ..UiChunk::new("tool-output-available")
        });
    }

    /// The result of a call that the client knows.
    pub(super) fn on_result_done(&mut self, task: &'a TaskFold, result: &ToolResult) {
        let Some((_, call)) = task.call(&result.call_id) else { return };
        let is_client = is_client_call(call);
        let Some(known) = self.known_call(&result.call_id) else { return };
        known.has_ended = true;
        known.shown_key = None;
        let status = result.status.unwrap_or(ResultStatus::Completed);
        let is_denied = status == ResultStatus::Rejected && was_rejected_by_user(task, call);
        let has_whole_input = known.is_available && (known.is_executed || !is_denied);
        // The SDK never sends the answers of a step with a denied call, unless the call is the server's.
        if !has_whole_input && (is_denied || !is_client) {
            self.show_input(call, CallRunner::Server);
        }
        let tool_call_id = Some(call.call_id.as_str());
        if is_denied {
            return self.push(&UiChunk { tool_call_id, ..UiChunk::new("tool-output-denied") });
        }
        if let Some(known) = self.known_call(&result.call_id) {
            known.is_executed |= !is_client;
        }
        let provider_executed = (!is_client).then_some(true);
        let chunk = if status == ResultStatus::Completed {
            let output = if is_client { client_output(call, result) } else { tool_output(self.run, task, result) };
            UiChunk { output: Some(output), ..UiChunk::new("tool-output-available") }
        } else {
            let text = error_text(self.run, task, result, status);
            UiChunk { error_text: Some(text.into()), ..UiChunk::new("tool-output-error") }
        };
        self.push(&UiChunk { tool_call_id, provider_executed, ..chunk });
    }
}

/// Whether a person said no. A time-out is an error, and so is a rule that forbids the call.
fn was_rejected_by_user(task: &TaskFold, call: &ToolCall) -> bool {
    let decision = task.last_approval(&call.call_id).and_then(|(_, decision)| decision.as_ref());
    decision.is_some_and(|decision| decision.by == Initiator::User)
}

fn tool_output(run: &RunFold, task: &TaskFold, result: &ToolResult) -> ExactValue {
    to_exact_value(&UiToolOutput {
        text: result_text(run, task, result),
        blocks: result.block_list.as_deref().unwrap_or_default(),
        artifact: result.artifact.as_ref(),
        result: None,
    })
}

/// What the client sent, as far as the log tells: objects and lists are sent as JSON, everything else as text.
fn client_output(call: &ToolCall, result: &ToolResult) -> ExactValue {
    let blocks = result.block_list.as_deref().unwrap_or_default();
    match blocks {
        [Block::Image(image)] if call.name == COMPUTER_TOOL => json!({"image_url": image.image_url.url}).into(),
        blocks if blocks.iter().all(|block| matches!(block, Block::Text(_))) => {
            let text = plain_text(blocks);
            let is_structured = text.trim_start().starts_with(['{', '[']);
            let value = is_structured.then(|| ExactValue::parse(&text).ok()).flatten();
            value.unwrap_or(ExactValue::String(text))
        }
        blocks => to_exact_value(&UiToolOutput { text: plain_text(blocks), blocks, artifact: None, result: None }),
    }
}

fn error_text(run: &RunFold, task: &TaskFold, result: &ToolResult, status: ResultStatus) -> String {
    let error = result.error.as_ref().map(|error| error.message.clone());
    let written = error.filter(|text| !text.is_empty()).or_else(|| Some(result_text(run, task, result)));
    let default = match status {
        ResultStatus::Rejected => "The call was not approved.",
        ResultStatus::Incomplete | ResultStatus::InProgress => "The call was not finished.",
        ResultStatus::Unknown => "The outcome of the call is unknown.",
        ResultStatus::Failed | ResultStatus::Completed => "The tool failed.",
    };
    written.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
}

pub(super) fn blocks_bytes(blocks: &[Block]) -> usize {
    let bytes = |block: &Block| match block {
        Block::Text(text) => text.text().len(),
        Block::Image(image) => image.image_url.url.len(),
        _ => 0,
    };
    blocks.iter().map(bytes).sum()
}
