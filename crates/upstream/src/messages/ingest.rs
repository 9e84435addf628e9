//! Turns the stream of a message into model events.
//!
//! An item is `Done` when the next block starts or the message ends: only then is it certain that no limit truncated it.
//! The last item before a limit stays open, and the consumer closes it as incomplete.

use super::block_builder::{
    ContentBlockBuilder, ContentBlockKind, NO_SLOT, hosted_action, hosted_state, parse_citation, visible_result,
};
use super::block_delta::{ContentBlockDelta, ContentBlockDeltaEvent};
use super::classify_error::classify_stream_error;
use super::item_builder::{MessagesItemBuilder, MessagesUsage};
use crate::delta_json::{DeltaIngest, DeltaTemplate};
use crate::{Ingest, json, provider_error};
use model::event::StopReason;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest, ModelTurnEnd};
use serde_json::Value;

/// Reads the response to one request. `origin` is recorded in its raw items.
pub fn new_ingest(origin: String, _turn: &ModelRequest) -> Box<dyn Ingest> {
    Box::new(MessagesIngest { origin, ..MessagesIngest::default() })
}

#[derive(Debug, Default)]
pub(crate) struct MessagesIngest {
    origin: String,
    /// Open blocks, in the order of their starts.
    blocks: Vec<ContentBlockBuilder>,
    /// Open items, in the order of their starts.
    items: Vec<MessagesItemBuilder>,
    next_slot: u32,
    usage: MessagesUsage,
    model: Option<String>,
    service_tier: Option<String>,
    stop_reason: Option<StopReason>,
    /// The terminal event was emitted.
    is_finished: bool,
    /// Of the last delta, if it was one of a text; with the index of its block.
    text_template: Option<DeltaTemplate<u32>>,
}

impl DeltaIngest for MessagesIngest {
    fn read_delta(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>) -> bool {
        if self.is_finished {
            return false;
        }
        if let Some((index, text)) = self.text_template.as_ref().and_then(|template| template.find_text(&event.data)) {
            return self.push_delta(Some(index), ContentBlockDelta::Text(text), out);
        }
        let data = &event.data;
        let Some(event) = ContentBlockDeltaEvent::parse(data) else { return false };
        let Some(delta) = event.block_delta() else { return false };
        self.text_template = match delta {
            ContentBlockDelta::Text(text) => DeltaTemplate::new(event.index, data, text),
            ContentBlockDelta::Thinking(_) | ContentBlockDelta::Input(_) => None,
        };
        self.push_delta(Some(event.index), delta, out)
    }

    fn read_tree(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>) {
        if self.is_finished {
            return;
        }
        match model::json::parse_lenient_json(&event.data) {
            Ok(value) => self.dispatch_event(event.event.as_deref(), value, out),
            Err(error) => self.fail(provider_error::invalid_json_failure(&event.data, &error), out),
        }
    }

    fn read_end(&mut self, out: &mut Vec<ModelEvent>) {
        // With a stop reason and every block ended, nothing is missing but the terminal event.
        if self.stop_reason.is_some() && self.blocks.is_empty() {
            self.finish(out);
        } else {
            self.fail(provider_error::truncated_stream_failure(), out);
        }
    }
}

impl MessagesIngest {
    fn dispatch_event(&mut self, name: Option<&str>, event: Value, out: &mut Vec<ModelEvent>) {
        match json::str_field(&event, "type").or(name).unwrap_or_default() {
            "message_start" => self.message_started(&event, out),
            "content_block_start" => self.block_started(event, out),
            "content_block_delta" => self.block_delta(event, out),
            "content_block_stop" => self.block_ended(json::u32_field(&event, "index"), out),
            "message_delta" => self.message_delta(event, out),
            "message_stop" => self.finish(out),
            "ping" => {}
            "error" => self.fail(classify_stream_error(&event), out),
            _ => out.push(unknown_delta(event)),
        }
    }

    fn message_started(&mut self, event: &Value, out: &mut Vec<ModelEvent>) {
        let Some(message) = event.get("message") else { return };
        self.model = json::str_field(message, "model").map(str::to_owned);
        self.update_usage(message.get("usage"), out);
    }

    fn message_delta(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        self.update_usage(event.get("usage"), out);
        let Some(delta) = event.get("delta") else { return };
        let Some(reason) = json::str_field(delta, "stop_reason") else { return };
        let (stop_reason, is_expected) = match reason {
            "end_turn" | "stop_sequence" => (StopReason::Stop, true),
            "tool_use" => (StopReason::ToolCalls, true),
            "max_tokens" | "model_context_window_exceeded" => (StopReason::MaxTokens, true),
            "pause_turn" => (StopReason::MaxTokens, false),
            // The details of a refusal are passed on.
            "refusal" => (StopReason::ContentFilter, json::non_null_field(delta, "stop_details").is_none()),
            _ => (StopReason::Stop, false),
        };
        self.stop_reason = Some(stop_reason);
        if !is_expected {
            out.push(unknown_delta(event));
        }
    }

    fn update_usage(&mut self, usage: Option<&Value>, out: &mut Vec<ModelEvent>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        self.usage.update(usage);
        if let Some(tier) = json::str_field(usage, "service_tier") {
            self.service_tier = Some(tier.to_owned());
        }
        out.push(ModelEvent::Delta(ModelDelta::Usage(self.usage.to_usage())));
    }

    fn block_started(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let index = json::u32_field(&event, "index");
        match event.get("content_block").map_or(ContentBlockKind::Unknown, ContentBlockKind::from_json) {
            ContentBlockKind::Unknown => {
                // Its deltas have to find it, and are unknown, too.
                self.blocks.push(ContentBlockBuilder::new(index, NO_SLOT, ContentBlockKind::Unknown, Value::Null));
                out.push(unknown_delta(event));
            }
            kind => {
                let start_json = json::take_field(&mut event, "content_block").unwrap_or_default();
                self.start_block(index, kind, start_json, out);
            }
        }
    }

    /// Items before the block are done, unless it continues one of them.
    fn start_block(
        &mut self,
        index: Option<u32>,
        kind: ContentBlockKind,
        start_json: Value,
        out: &mut Vec<ModelEvent>,
    ) {
        let joined = self.item_to_join(kind, &start_json);
        self.finish_closed_items(joined, out);
        let slot = joined.unwrap_or(self.next_slot);
        if joined.is_none() {
            self.next_slot = slot.saturating_add(1);
            self.items.push(MessagesItemBuilder::new(slot, kind, &start_json, out));
        }
        let Some(item) = self.items.iter_mut().find(|item| item.slot == slot) else { return };
        item.has_open_block = true;
        item.pending_call_id = None;
        // The start of a block may already have text.
        let text = match kind {
            ContentBlockKind::Text => json::str_field(&start_json, "text"),
            ContentBlockKind::Thinking => json::str_field(&start_json, "thinking"),
            _ => None,
        };
        let text = text.unwrap_or_default().to_owned();
        self.blocks.push(ContentBlockBuilder {
            text_start_chars: item.text_chars,
            ..ContentBlockBuilder::new(index, slot, kind, start_json)
        });
        let delta = if kind == ContentBlockKind::Text {
            ContentBlockDelta::Text(&text)
        } else {
            ContentBlockDelta::Thinking(&text)
        };
        self.push_delta(index, delta, out);
    }

    /// The slot of the item that a block continues.
    fn item_to_join(&self, kind: ContentBlockKind, start_json: &Value) -> Option<u32> {
        let item = match kind {
            ContentBlockKind::Text => {
                self.items.last().filter(|item| item.kind == ContentBlockKind::Text && !item.has_open_block)
            }
            ContentBlockKind::HostedToolResult => {
                let call = json::str_field(start_json, "tool_use_id")?;
                self.items.iter().find(|item| item.pending_call_id.as_deref() == Some(call))
            }
            _ => None,
        };
        item.map(|item| item.slot)
    }

    /// Finishes all items without an open block or a pending call, but for the one in slot `kept`.
    fn finish_closed_items(&mut self, kept: Option<u32>, out: &mut Vec<ModelEvent>) {
        let origin = &self.origin;
        self.items.retain_mut(|item| {
            let is_open = item.has_open_block || item.pending_call_id.is_some() || kept == Some(item.slot);
            if !is_open {
                item.finish(origin, out);
            }
            is_open
        });
    }

    fn block_delta(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let index = json::u32_field(&event, "index");
        let is_new = !self.blocks.iter().any(|block| block.index == index);
        let delta = event.get("delta").unwrap_or(&Value::Null);
        let is_known = match ContentBlockDelta::from_json(delta) {
            Some(delta) => {
                if let Some((kind, start_json)) = delta.implied_block().filter(|_| is_new) {
                    self.start_block(index, kind, start_json, out);
                }
                self.push_delta(index, delta, out)
            }
            None => self.apply_metadata_delta(index, delta),
        };
        if !is_known {
            out.push(unknown_delta(event));
        }
    }

    /// Returns `false`, and changes nothing, if the delta does not fit the block.
    fn push_delta(&mut self, index: Option<u32>, delta: ContentBlockDelta<'_>, out: &mut Vec<ModelEvent>) -> bool {
        let Some(block) = self.blocks.iter_mut().rev().find(|block| block.index == index) else { return false };
        let slot = block.slot;
        match (block.kind, delta) {
            (ContentBlockKind::Text, ContentBlockDelta::Text(text)) => {
                block.text.push_str(text);
                if let Some(item) = self.items.iter_mut().rev().find(|item| item.slot == slot) {
                    item.push_text(text, out);
                }
            }
            (ContentBlockKind::Thinking, ContentBlockDelta::Thinking(text)) => {
                block.text.push_str(text);
                if !text.is_empty() {
                    let text = text.to_owned();
                    out.push(ModelEvent::Delta(ModelDelta::Reasoning { slot, part: 0, text }));
                }
            }
            (ContentBlockKind::ToolUse, ContentBlockDelta::Input(text)) => {
                block.text.push_str(text);
                if !text.is_empty() {
                    out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text: text.to_owned() }));
                }
            }
            (ContentBlockKind::HostedToolUse, ContentBlockDelta::Input(text)) => block.text.push_str(text),
            _ => return false,
        }
        true
    }

    /// Applies a signature or a citation. Returns `false` if it should be passed on as unknown.
    fn apply_metadata_delta(&mut self, index: Option<u32>, delta: &Value) -> bool {
        let Some(block) = self.blocks.iter_mut().rev().find(|block| block.index == index) else { return false };
        match (block.kind, json::str_field(delta, "type"), &mut block.start_json) {
            (ContentBlockKind::Thinking, Some("signature_delta"), Value::Object(fields)) => {
                let signature = json::str_field(delta, "signature").unwrap_or_default();
                fields.insert("signature".to_owned(), signature.into());
                true
            }
            (ContentBlockKind::Text, Some("citations_delta"), _) => {
                let Some(citation) = delta.get("citation") else { return false };
                block.citations.push(citation.clone());
                parse_citation(citation, 0, 0).is_some()
            }
            _ => false,
        }
    }

    fn block_ended(&mut self, index: Option<u32>, out: &mut Vec<ModelEvent>) {
        let Some(position) = self.blocks.iter().rposition(|block| block.index == index) else { return };
        let block = self.blocks.remove(position);
        let (slot, kind) = (block.slot, block.kind);
        let Some(item) = self.items.iter_mut().find(|item| item.slot == slot) else { return };
        item.has_open_block = false;
        // Without text there is nothing to annotate.
        if kind == ContentBlockKind::Text && item.is_announced {
            let annotations = block
                .citations
                .iter()
                .filter_map(|citation| parse_citation(citation, block.text_start_chars, item.text_chars));
            out.extend(
                annotations
                    .map(|annotation| ModelDelta::Annotation { slot, part: 0, annotation })
                    .map(ModelEvent::Delta),
            );
        }
        if kind == ContentBlockKind::ToolUse && block.text.trim().is_empty() {
            out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text: block.input_text() }));
        }
        let block = block.into_json();
        match kind {
            ContentBlockKind::HostedToolUse => {
                item.pending_call_id = json::str_field(&block, "id").map(str::to_owned);
                item.action = hosted_action(&block);
                out.push(item.hosted_delta("in_progress"));
            }
            ContentBlockKind::HostedToolResult => {
                item.action.extend(visible_result(&block).map(|result| ("result".to_owned(), result)));
                out.push(item.hosted_delta(hosted_state(&block)));
            }
            _ => {}
        }
        item.blocks.push(block);
    }

    /// The message is complete, or a limit ended it.
    fn finish(&mut self, out: &mut Vec<ModelEvent>) {
        if self.is_finished {
            return;
        }
        self.is_finished = true;
        let stop_reason = self.stop_reason.unwrap_or(StopReason::Stop);
        if matches!(stop_reason, StopReason::MaxTokens | StopReason::ContentFilter) {
            // Only the last item may be truncated.
            let last = self.items.last().map(|item| item.slot);
            self.finish_closed_items(last, out);
        } else {
            while let Some(index) = self.blocks.first().map(|block| block.index) {
                self.block_ended(index, out);
            }
            for mut item in std::mem::take(&mut self.items) {
                item.finish(&self.origin, out);
            }
        }
        let (usage, model, service_tier) = (self.usage.to_usage(), self.model.take(), self.service_tier.take());
        out.push(ModelEvent::End(ModelTurnEnd { stop_reason, usage, model, service_tier }));
    }

    fn fail(&mut self, failure: ModelFailure, out: &mut Vec<ModelEvent>) {
        if !self.is_finished {
            self.is_finished = true;
            out.push(ModelEvent::Failed(failure));
        }
    }
}

fn unknown_delta(event: Value) -> ModelEvent {
    ModelEvent::Delta(ModelDelta::Unknown(event))
}
