//! Tools that the provider runs.

use super::EventProjector;
use super::outputs::UiToolOutput;
use crate::hosted_calls::{
    has_complete_arguments, hosted_arguments, hosted_call_succeeded, hosted_error_text, hosted_output_text,
};
use crate::ui_stream::wire::{UiChunk, UiChunkId, UiToolMetadata};
use model::ItemId;
use model::item::{CallKind, HostedCall, Item, MCP_LIST_TOOLS};
use model::json::{ExactValue, to_exact_value};
use serde_json::{Value, json};

impl EventProjector<'_, '_> {
    pub(super) fn on_hosted_call_added(&mut self, call: &HostedCall) {
        if call.name == MCP_LIST_TOOLS {
            return;
        }
        let metadata = UiToolMetadata {
            kind: Some(CallKind::Hosted),
            server_label: call.server_label(),
            ..UiToolMetadata::default()
        };
        self.push(&UiChunk { tool_metadata: Some(metadata), ..new_hosted_chunk("tool-input-start", call) });
        if has_complete_arguments(call) {
            self.show_hosted_input(call);
        }
    }

    pub(super) fn on_hosted_call_updated(&mut self, output_index: u32) {
        if let Some(Item::HostedCall(call)) = self.item_at(output_index).map(|fold| &fold.item)
            && call.name != MCP_LIST_TOOLS
            && has_complete_arguments(call)
            && !self.message.hosted_inputs.contains(&call.id)
        {
            self.show_hosted_input(call);
        }
    }

    fn show_hosted_input(&mut self, call: &HostedCall) {
        self.message.hosted_inputs.push(call.id.clone());
        let input = Some(ExactValue::Object(hosted_arguments(call)));
        self.push(&UiChunk { input, ..new_hosted_chunk("tool-input-available", call) });
    }

    /// A preview of an image that the tool generates.
    pub(super) fn show_partial_image(&mut self, call: &HostedCall) {
        // A part with an output and without an input is none to the SDK.
        if !self.message.hosted_inputs.contains(&call.id) {
            self.show_hosted_input(call);
        }
        let output = Some(hosted_output(call, String::new()));
        self.push(&UiChunk { output, preliminary: Some(true), ..new_output_chunk("tool-output-available", &call.id) });
    }

    pub(super) fn on_hosted_call_done(&mut self, call: &HostedCall) {
        if call.name == MCP_LIST_TOOLS {
            return self.show_mcp_tools(call);
        }
        if !self.message.hosted_inputs.contains(&call.id) {
            self.show_hosted_input(call);
        }
        self.message.hosted_inputs.retain(|shown| *shown != call.id);
        if hosted_call_succeeded(call) {
            let output = Some(hosted_output(call, hosted_output_text(call)));
            return self.push(&UiChunk { output, ..new_output_chunk("tool-output-available", &call.id) });
        }
        let text = hosted_error_text(call).unwrap_or_else(|| "The tool failed.".to_owned());
        self.push(&UiChunk { error_text: Some(text.into()), ..new_output_chunk("tool-output-error", &call.id) });
    }

    /// The tools of an MCP server. They are no call: nobody waits for them.
    fn show_mcp_tools(&mut self, call: &HostedCall) {
        let tools = call.output().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool.get("name")?.as_str()).collect();
        let mut data = json!({"serverLabel": call.server_label(), "tools": names});
        if let (Some(error), Some(data)) = (hosted_error_text(call), data.as_object_mut()) {
            data.insert("error".to_owned(), error.into());
        }
        let (id, data) = (Some(UiChunkId::Name(call.id.as_str())), Some(data.into()));
        self.push(&UiChunk { id, data, ..UiChunk::new("data-mcp-tools") });
    }
}

/// A chunk about a call. It has no call id, so the id of the item is its id.
fn new_hosted_chunk<'c>(chunk_type: &'static str, call: &'c HostedCall) -> UiChunk<'c> {
    UiChunk { tool_name: Some(call.tool_name()), dynamic: Some(true), ..new_output_chunk(chunk_type, &call.id) }
}

fn new_output_chunk<'c>(chunk_type: &'static str, call: &'c ItemId) -> UiChunk<'c> {
    UiChunk { tool_call_id: Some(call.as_str()), provider_executed: Some(true), ..UiChunk::new(chunk_type) }
}

fn hosted_output(call: &HostedCall, text: String) -> ExactValue {
    to_exact_value(&UiToolOutput {
        text,
        blocks: call.block_list.as_deref().unwrap_or_default(),
        artifact: None,
        result: call.output(),
    })
}
