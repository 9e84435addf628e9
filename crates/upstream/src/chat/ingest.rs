//! Turns the chunks of a stream into model events.

use super::classify_error::classify_stream_error;
use super::delta_chunk::ChatDeltaChunk;
use super::message_builder::ChatMessageBuilder;
use super::reasoning::{ReasoningBuilder, ReasoningDelta};
use super::slot_counter::SlotCounter;
use super::tool_calls::ChatToolCalls;
use super::usage::{self, ChatFinishReason};
use crate::delta_json::{DeltaIngest, DeltaTemplate};
use crate::provider_error::{self, ProviderErrorKind};
use crate::{Ingest, json};
use model::event::StopReason;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind, ModelRequest, ModelTurnEnd};
use model::usage::Usage;
use serde_json::{Value, json};

/// Ends the stream.
const DONE: &str = "[DONE]";

/// Reads the response to one request. `origin` is recorded in its raw items.
pub fn new_ingest(origin: String, _turn: &ModelRequest) -> Box<dyn Ingest> {
    Box::new(ChatIngest { origin, ..ChatIngest::default() })
}

/// Reasoning is done when the message begins, and the message when a call does. Later deltas of either make one more item
/// that stays open until the end: a service that interleaves everything produces five items, not a thousand.
#[derive(Debug, Default)]
pub(crate) struct ChatIngest {
    origin: String,
    /// The terminal event was emitted.
    is_finished: bool,
    has_choice: bool,
    slot_counter: SlotCounter,
    reasoning: Option<ReasoningBuilder>,
    is_reasoning_closed: bool,
    message: Option<ChatMessageBuilder>,
    is_message_closed: bool,
    calls: ChatToolCalls,
    finish_reason: Option<String>,
    usage: Usage,
    model: Option<String>,
    service_tier: Option<String>,
    /// Of the last chunk, if it had text alone.
    text_template: Option<DeltaTemplate<()>>,
}

impl DeltaIngest for ChatIngest {
    fn read_delta(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>) -> bool {
        // An event with this name is an error, whatever its data.
        if self.is_finished || event.event.as_deref() == Some("error") {
            return false;
        }
        let data = event.data.trim();
        if let Some(((), text)) = self.text_template.as_ref().and_then(|template| template.find_text(data)) {
            self.push_text(text.to_owned(), None, out);
            return true;
        }
        let Some(chunk) = ChatDeltaChunk::parse(data) else { return false };
        self.text_template = chunk.only_text().and_then(|text| DeltaTemplate::new((), data, text));
        self.push_delta_chunk(chunk, out);
        true
    }

    fn read_tree(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>) {
        let data = event.data.trim();
        if self.is_finished || data.is_empty() {
            return;
        }
        // It may change what a delta of the template would not change back.
        self.text_template = None;
        if data == DONE {
            let is_truncated =
                self.finish_reason.is_none() && !(self.has_choice && self.calls.are_arguments_complete());
            return if is_truncated {
                self.fail(provider_error::truncated_stream_failure(), out);
            } else {
                self.complete(out);
            };
        }
        match model::json::parse_lenient_json(data) {
            Ok(chunk) => self.push_chunk(chunk, event.event.as_deref(), out),
            Err(error) => self.fail(provider_error::invalid_json_failure(data, &error), out),
        }
    }

    fn read_end(&mut self, out: &mut Vec<ModelEvent>) {
        match (self.is_finished, &self.finish_reason) {
            (true, _) => {}
            (false, Some(_)) => self.complete(out),
            (false, None) => self.fail(provider_error::truncated_stream_failure(), out),
        }
    }
}

impl ChatIngest {
    fn fail(&mut self, failure: ModelFailure, out: &mut Vec<ModelEvent>) {
        self.is_finished = true;
        out.push(ModelEvent::Failed(failure));
    }

    fn push_delta_chunk(&mut self, chunk: ChatDeltaChunk<'_>, out: &mut Vec<ModelEvent>) {
        update_if_changed(&mut self.model, chunk.model.as_ref().map(|model| model.0.as_ref()));
        update_if_changed(&mut self.service_tier, chunk.service_tier.as_ref().map(|tier| tier.0.as_ref()));
        self.has_choice = true;
        let mut delta = chunk.into_delta();
        if let Some(reasoning) = delta.take_reasoning() {
            self.push_reasoning(reasoning, out);
        }
        if let Some(text) = delta.content.take() {
            self.push_text(text.0.into_owned(), None, out);
        }
        if let Some(call) = delta.take_call() {
            self.close_items_before_calls(out);
            self.calls.push_one(call, &mut self.slot_counter, out);
        }
    }

    fn push_chunk(&mut self, mut chunk: Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        if let Some(failure) = classify_stream_error(&chunk, name) {
            return self.fail(failure, out);
        }
        let usage = usage::usage_of_chunk(&chunk);
        let choices = match chunk.get_mut("choices") {
            Some(Value::Array(choices)) => std::mem::take(choices),
            _ if usage.is_some() => Vec::new(),
            _ => return out.push(ModelEvent::Delta(ModelDelta::Unknown(chunk))),
        };
        update_if_changed(&mut self.model, json::str_field(&chunk, "model"));
        update_if_changed(&mut self.service_tier, json::str_field(&chunk, "service_tier"));
        for choice in choices {
            if let Err(failure) = self.push_choice(choice, out) {
                return self.fail(failure, out);
            }
        }
        self.update_usage(usage, out);
    }

    /// After the finish reason, the terminal event reports the usage.
    fn update_usage(&mut self, usage: Option<Usage>, out: &mut Vec<ModelEvent>) {
        let Some(usage) = usage.filter(|usage| *usage != self.usage) else { return };
        self.usage = usage;
        if self.finish_reason.is_none() {
            out.push(ModelEvent::Delta(ModelDelta::Usage(usage)));
        }
    }

    fn push_choice(&mut self, mut choice: Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let is_first = choice.get("index").and_then(Value::as_u64).unwrap_or_default() == 0;
        if !choice.is_object() || !is_first {
            out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "choices": [choice] }))));
            return Ok(());
        }
        if let Some(failure) = classify_stream_error(&choice, None) {
            return Err(failure);
        }
        self.has_choice = true;
        let delta = json::take_field(&mut choice, "delta")
            .filter(|delta| delta.as_object().is_some_and(|fields| !fields.is_empty()));
        // A complete message after deltas repeats them.
        let delta =
            delta.or_else(|| json::take_field(&mut choice, "message").filter(|_| self.slot_counter.is_unused()));
        if let Some(delta) = delta {
            self.push_delta(delta, take_logprobs(&mut choice), out);
        }
        self.update_usage(choice.get("usage").and_then(usage::parse_usage), out);
        if let Some(reason) = json::str_field(&choice, "finish_reason").filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
            return check_finish_reason(reason);
        }
        Ok(())
    }

    fn push_delta(&mut self, mut delta: Value, logprobs: Option<Value>, out: &mut Vec<ModelEvent>) {
        if let Some(reasoning) = ReasoningDelta::take_from(&mut delta) {
            self.push_reasoning(reasoning, out);
        }
        match json::take_field(&mut delta, "content") {
            Some(Value::String(text)) => self.push_text(text, logprobs, out),
            Some(Value::Array(parts)) => parts.into_iter().for_each(|part| self.push_part(part, out)),
            _ => {}
        }
        if let Some(text) = json::take_string_field(&mut delta, "refusal").filter(|text| !text.is_empty()) {
            let delta = self.open_message(out).refusal_delta(text);
            out.push(ModelEvent::Delta(delta));
        }
        for image in take_list(&mut delta, "images") {
            self.push_part(image, out);
        }
        for annotation in take_list(&mut delta, "annotations") {
            let known = self.message.as_ref().and_then(|message| message.annotation_delta(&annotation));
            let unknown = || ModelDelta::Unknown(json!({ "annotations": [annotation] }));
            out.push(ModelEvent::Delta(known.unwrap_or_else(unknown)));
        }
        let mut call_deltas = take_list(&mut delta, "tool_calls");
        if let Some(function) = json::take_field(&mut delta, "function_call") {
            call_deltas.push(json!({ "function": function }));
        }
        if !call_deltas.is_empty() {
            self.close_items_before_calls(out);
            self.calls.push_deltas(call_deltas, &mut self.slot_counter, out);
        }
        if let Some(audio) = json::take_field(&mut delta, "audio") {
            out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "audio": audio }))));
        }
    }

    fn close_items_before_calls(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.calls.have_started() {
            self.close_reasoning(out);
            self.close_message(out);
        }
    }

    fn push_reasoning(&mut self, delta: ReasoningDelta, out: &mut Vec<ModelEvent>) {
        let slots = &mut self.slot_counter;
        let reasoning = self.reasoning.get_or_insert_with(|| {
            let slot = slots.next();
            out.push(ModelEvent::Delta(ModelDelta::Started { slot, item: ModelItemKind::Reasoning }));
            ReasoningBuilder::new(slot)
        });
        out.extend(reasoning.push(delta).map(ModelEvent::Delta));
    }

    fn push_text(&mut self, text: String, logprobs: Option<Value>, out: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            let delta = self.open_message(out).text_delta(text, logprobs);
            out.push(ModelEvent::Delta(delta));
        }
    }

    fn push_part(&mut self, mut part: Value, out: &mut Vec<ModelEvent>) {
        match json::str_field(&part, "type").unwrap_or_default() {
            "text" => self.push_text(json::take_string_field(&mut part, "text").unwrap_or_default(), None, out),
            "thinking" => {
                if let Some(reasoning) = ReasoningDelta::from_part(&part) {
                    self.push_reasoning(reasoning, out);
                }
            }
            "image_url" => {
                let url = part.get_mut("image_url").and_then(|image| match image {
                    Value::String(url) => Some(std::mem::take(url)),
                    image => json::take_string_field(image, "url"),
                });
                if let Some(url) = url.filter(|url| !url.is_empty()) {
                    let delta = self.open_message(out).image_delta(url);
                    out.push(ModelEvent::Delta(delta));
                }
            }
            _ => out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "content": [part] })))),
        }
    }

    /// Starts the message if necessary.
    fn open_message(&mut self, out: &mut Vec<ModelEvent>) -> &mut ChatMessageBuilder {
        if self.message.is_none() && !self.calls.have_started() {
            self.close_reasoning(out);
        }
        let slots = &mut self.slot_counter;
        self.message.get_or_insert_with(|| ChatMessageBuilder::start(slots, out))
    }

    fn close_reasoning(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.is_reasoning_closed
            && let Some(reasoning) = self.reasoning.take()
        {
            self.is_reasoning_closed = true;
            out.push(ModelEvent::Delta(reasoning.finish(&self.origin)));
        }
    }

    fn close_message(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.is_message_closed
            && let Some(message) = self.message.take()
        {
            self.is_message_closed = true;
            out.push(ModelEvent::Delta(ModelDelta::Done { slot: message.slot, raw: None }));
        }
    }

    /// Ends all open items in the order in which they started. Calls end with the turn; what started after one of them
    /// waits for it, so that everybody who shows an item when it is complete shows the items in the model's order.
    fn finish_all(&mut self, out: &mut Vec<ModelEvent>) {
        let reasoning = self.reasoning.take().map(|reasoning| reasoning.finish(&self.origin));
        let message = self.message.take().map(|message| ModelDelta::Done { slot: message.slot, raw: None });
        let mut done: Vec<ModelDelta> = reasoning.into_iter().chain(message).collect();
        done.extend(self.calls.finish_all(&self.origin));
        done.sort_by_key(done_slot);
        out.extend(done.into_iter().map(ModelEvent::Delta));
    }

    /// At a limit, open items are not `Done`.
    fn complete(&mut self, out: &mut Vec<ModelEvent>) {
        let stop_reason = match self.finish_reason.as_deref().map(ChatFinishReason::parse) {
            Some(ChatFinishReason::Stop(stop_reason)) => stop_reason,
            _ => StopReason::Stop,
        };
        let is_limited = matches!(stop_reason, StopReason::MaxTokens | StopReason::ContentFilter);
        if let Some(failure) = self.calls.check_names().err().filter(|_| !is_limited) {
            return self.fail(failure, out);
        }
        if let Some(reason) =
            self.finish_reason.as_deref().filter(|reason| ChatFinishReason::parse(reason) == ChatFinishReason::Unknown)
        {
            out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "finish_reason": reason }))));
        }
        let stop_reason = match (is_limited, self.calls.is_empty()) {
            (true, _) => stop_reason,
            (false, true) => StopReason::Stop,
            (false, false) => StopReason::ToolCalls,
        };
        self.calls.emit_all(&mut self.slot_counter, out);
        if !is_limited {
            self.finish_all(out);
        }
        self.is_finished = true;
        let (model, service_tier) = (self.model.take(), self.service_tier.take());
        out.push(ModelEvent::End(ModelTurnEnd { stop_reason, usage: self.usage, model, service_tier }));
    }
}

/// The slot that a `Done` ends.
const fn done_slot(delta: &ModelDelta) -> u32 {
    match delta {
        ModelDelta::Done { slot, .. } => *slot,
        _ => u32::MAX,
    }
}

/// Some finish reasons are errors.
fn check_finish_reason(reason: &str) -> Result<(), ModelFailure> {
    let kind = match ChatFinishReason::parse(reason) {
        ChatFinishReason::Stop(_) | ChatFinishReason::Unknown => return Ok(()),
        ChatFinishReason::ProviderFailed => ProviderErrorKind::Provider,
        ChatFinishReason::Overloaded => ProviderErrorKind::Overloaded,
        ChatFinishReason::Aborted => ProviderErrorKind::Incomplete,
    };
    let message = "The provider aborted its response.";
    Err(kind.to_failure(message, Some(json!({ "finish_reason": json::sanitize_for_error(reason) }))))
}

fn update_if_changed(current: &mut Option<String>, new: Option<&str>) {
    if let Some(new) = new.filter(|new| !new.is_empty() && current.as_deref() != Some(*new)) {
        *current = Some(new.to_owned());
    }
}

/// Takes an array out of the object, without a copy. A single object counts as an array.
fn take_list(value: &mut Value, key: &str) -> Vec<Value> {
    match json::take_field(value, key) {
        Some(Value::Array(list)) => list,
        Some(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    }
}

fn take_logprobs(choice: &mut Value) -> Option<Value> {
    let mut logprobs = json::take_field(choice, "logprobs")?;
    let content = json::take_field(&mut logprobs, "content");
    content.filter(|content| content.as_array().is_some_and(|content| !content.is_empty()))
}
