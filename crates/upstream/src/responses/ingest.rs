//! Turns the stream of a response into model events.

use super::classify_error::classify_stream_error;
use super::delta_event::{ResponsesDeltaEvent, UsualDeltaKind};
use super::event_kind::{ArgumentsKind, ResponsesEventKind};
use super::hosted_call;
use super::item_builder::{ItemProgress, ResponsesItemKind, non_empty_logprobs, part_text};
use super::item_index::{ItemAddress, PartAddress, ResponsesItemIndex};
use super::part_sequencer::{PartDelta, TextPartKind};
use crate::Ingest;
use crate::delta_json::DeltaIngest;
use crate::json::{non_null_field, str_field, take_field, take_string_field, u32_field};
use crate::provider_error::{self, ProviderError};
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest};
use serde_json::Value;
use std::borrow::Cow;

/// Reads the response to one request. `origin` is recorded in its raw items.
pub fn new_ingest(origin: String, _turn: &ModelRequest) -> Box<dyn Ingest> {
    Box::new(ResponsesIngest { origin, ..ResponsesIngest::default() })
}

#[derive(Debug, Default)]
pub(crate) struct ResponsesIngest {
    pub(super) origin: String,
    pub(super) items: ResponsesItemIndex,
    pub(super) model: Option<String>,
    pub(super) service_tier: Option<String>,
    /// The terminal event was emitted.
    pub(super) is_finished: bool,
}

impl DeltaIngest for ResponsesIngest {
    fn read_delta(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>) -> bool {
        if self.is_finished {
            return false;
        }
        let data = event.data.trim();
        let Some((kind, mut event)) = ResponsesDeltaEvent::parse(data) else { return false };
        let delta = std::mem::take(&mut event.delta);
        let is_known = match kind {
            UsualDeltaKind::Text(kind) => self.push_text(event.part(kind), delta, None, out),
            UsualDeltaKind::Arguments(kind) => self.push_arguments(kind, event.item(), &delta, out),
        };
        if !is_known {
            match model::json::parse_lenient_json(data) {
                Ok(event) => push_unknown(event, out),
                Err(error) => self.fail(provider_error::invalid_json_failure(data, &error), out),
            }
        }
        true
    }

    fn read_tree(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>) {
        let data = event.data.trim();
        match data {
            _ if self.is_finished => {}
            // Some services send empty events to keep the connection alive.
            "" => {}
            "[DONE]" => self.read_end(out),
            _ => match model::json::parse_lenient_json(data) {
                Ok(value) => self.dispatch_event(value, event.event.as_deref(), out),
                Err(error) => self.fail(provider_error::invalid_json_failure(data, &error), out),
            },
        }
    }

    fn read_end(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.is_finished {
            self.fail(provider_error::truncated_stream_failure(), out);
        }
    }
}

impl ResponsesIngest {
    fn dispatch_event(&mut self, event: Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        let kind = match str_field(&event, "type").or(name) {
            // An error without a type.
            None if non_null_field(&event, "error").is_some() => ResponsesEventKind::Error,
            name => ResponsesEventKind::from_name(name.unwrap_or_default()),
        };
        match kind {
            ResponsesEventKind::Lifecycle => {
                self.update_metadata(non_null_field(&event, "response").unwrap_or(&Value::Null));
            }
            ResponsesEventKind::Terminal(status) => self.on_terminal_event(status, event, out),
            ResponsesEventKind::Error => {
                let error = ProviderError::from_json(&event);
                self.fail(classify_stream_error(&error), out);
            }
            ResponsesEventKind::ItemAdded => self.item_added(event, out),
            ResponsesEventKind::ItemDone => self.item_done(event, out),
            ResponsesEventKind::PartAdded => self.part_added(event, out),
            ResponsesEventKind::PartDone => self.part_done(event, out),
            ResponsesEventKind::TextDelta(kind) => self.text_delta(kind, event, out),
            ResponsesEventKind::TextDone(kind) => self.text_done(kind, &event, out),
            ResponsesEventKind::AnnotationAdded => self.annotation_added(event, out),
            ResponsesEventKind::ArgumentsDelta(kind) => self.arguments_delta(kind, event, out),
            ResponsesEventKind::ArgumentsDone(kind) => self.arguments_done(kind, event, out),
            ResponsesEventKind::HostedProgress => self.hosted_progress(&event, name, out),
            ResponsesEventKind::HostedInputDelta(input) => self.hosted_input_delta(input, event, out),
            ResponsesEventKind::HostedInputDone(input) => self.hosted_input_done(input, event, out),
            ResponsesEventKind::PartialImage => self.partial_image(event, out),
            ResponsesEventKind::Unknown => push_unknown(event, out),
        }
    }

    pub(super) fn update_metadata(&mut self, response: &Value) {
        let text = |key| str_field(response, key).map(str::to_owned);
        self.model = text("model").or_else(|| self.model.take());
        self.service_tier = text("service_tier").or_else(|| self.service_tier.take());
    }

    /// Emits the text that was held back, then the failure.
    pub(super) fn fail(&mut self, failure: ModelFailure, out: &mut Vec<ModelEvent>) {
        for item in &mut self.items.items {
            item.parts.close_all(item.slot, out);
        }
        self.is_finished = true;
        out.push(ModelEvent::Failed(failure));
    }

    fn item_added(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = non_null_field(&event, "item") else { return push_unknown(event, out) };
        let kind = ResponsesItemKind::from_json(item);
        if let Some(builder) = self.items.find_added(&event, item, kind) {
            builder.begin(item, out);
        }
        if kind == ResponsesItemKind::Unsupported {
            push_unknown(event, out);
        }
    }

    fn item_done(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = non_null_field(&event, "item") else { return push_unknown(event, out) };
        let kind = ResponsesItemKind::from_json(item);
        let Some(builder) = self.items.find_done(&event, item, kind) else { return };
        if kind == ResponsesItemKind::Unsupported {
            builder.progress = ItemProgress::Complete;
            return push_unknown(event, out);
        }
        let item = take_field(&mut event, "item").unwrap_or_default();
        builder.finish(&self.origin, item, out);
    }

    fn part_added(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let Some((kind, index)) = parse_part(&event) else { return push_unknown(event, out) };
        let Some(item) = self.items.find_or_create(ItemAddress::of_event(&event), item_kind_of_part(kind), out) else {
            return;
        };
        let at = item.parts.find_or_insert(kind, index);
        let mut part = take_field(&mut event, "part").unwrap_or_default();
        let field = if kind == TextPartKind::Refusal { "refusal" } else { "text" };
        if let Some(text) = take_string_field(&mut part, field).filter(|text| !text.is_empty()) {
            item.parts.push_delta(item.slot, at, PartDelta::Text(text, None), out);
        }
    }

    fn part_done(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some((kind, index)) = parse_part(&event) else { return push_unknown(event, out) };
        let Some(item) = self.items.find_or_create(ItemAddress::of_event(&event), item_kind_of_part(kind), out) else {
            return;
        };
        let part = non_null_field(&event, "part");
        let at = item.parts.find_ending(kind, index, part.map(|part| part_text(kind, part)).unwrap_or_default());
        if let Some(part) = part {
            item.parts.push_missing_text(item.slot, at, part_text(kind, part), non_empty_logprobs(part), out);
            item.annotate_missing(at, part, out);
        }
        item.parts.close(item.slot, at, out);
    }

    fn text_delta(&mut self, kind: TextPartKind, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(text) = str_field(&event, "delta") else { return push_unknown(event, out) };
        let (part, logprobs) = (PartAddress::of_event(kind, &event), non_empty_logprobs(&event));
        if !self.push_text(part, text.into(), logprobs, out) {
            push_unknown(event, out);
        }
    }

    /// Returns `false` if the item or the part has ended.
    fn push_text(
        &mut self,
        PartAddress { item, kind, index }: PartAddress<'_>,
        text: Cow<'_, str>,
        logprobs: Option<Value>,
        out: &mut Vec<ModelEvent>,
    ) -> bool {
        let Some(item) = self.items.find_or_create(item, item_kind_of_part(kind), out) else { return false };
        let at = item.parts.find_or_insert(kind, index);
        let is_open = !item.parts.is_closed(at);
        if is_open && !text.is_empty() {
            item.parts.push_delta(item.slot, at, PartDelta::Text(text.into_owned(), logprobs), out);
        }
        is_open
    }

    fn text_done(&mut self, kind: TextPartKind, event: &Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.find_or_create(ItemAddress::of_event(event), item_kind_of_part(kind), out) else {
            return;
        };
        let text = part_text(kind, event);
        let at = item.parts.find_ending(kind, part_index(kind, event), text);
        item.parts.push_missing_text(item.slot, at, text, non_empty_logprobs(event), out);
        item.parts.close(item.slot, at, out);
    }

    fn annotation_added(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.find_or_create(ItemAddress::of_event(&event), ResponsesItemKind::Message, out)
        else {
            return push_unknown(event, out);
        };
        let at = item.parts.find_or_insert(TextPartKind::Text, part_index(TextPartKind::Text, &event));
        let annotation = non_null_field(&event, "annotation").cloned().unwrap_or_default();
        item.annotate(at, &annotation, event, out);
    }

    fn arguments_delta(&mut self, kind: ArgumentsKind, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(delta) = str_field(&event, "delta") else { return push_unknown(event, out) };
        if !self.push_arguments(kind, ItemAddress::of_event(&event), delta, out) {
            push_unknown(event, out);
        }
    }

    /// Returns `false` if the item or its arguments have ended.
    fn push_arguments(
        &mut self,
        kind: ArgumentsKind,
        item: ItemAddress<'_>,
        delta: &str,
        out: &mut Vec<ModelEvent>,
    ) -> bool {
        let item = self.items.find_or_create(item, item_kind_of_call(kind), out);
        item.is_some_and(|item| item.push_arguments(delta, out))
    }

    fn arguments_done(&mut self, kind: ArgumentsKind, event: Value, out: &mut Vec<ModelEvent>) {
        let field = if kind == ArgumentsKind::Custom { "input" } else { "arguments" };
        let Some(arguments) = str_field(&event, field) else { return push_unknown(event, out) };
        if let Some(item) = self.items.find_or_create(ItemAddress::of_event(&event), item_kind_of_call(kind), out) {
            // Some services repeat the name here; for an item that was not announced it is the first mention.
            item.emit_started(&event, out);
            item.set_arguments(arguments, out);
        }
    }

    fn hosted_progress(&mut self, event: &Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        let name = str_field(event, "type").or(name).unwrap_or_default();
        let Some((kind, state)) = hosted_call::parse_progress_event(name.strip_prefix("response.").unwrap_or(name))
        else {
            return;
        };
        if let Some(item) =
            self.items.find_or_create(ItemAddress::of_event(event), ResponsesItemKind::HostedCall(kind), out)
        {
            item.hosted.update_state(item.slot, state, None, out);
        }
    }

    fn hosted_input_delta(&mut self, input: hosted_call::HostedInput, event: Value, out: &mut Vec<ModelEvent>) {
        // `shell_call_command.added` may already have the beginning of the command.
        let Some(delta) = str_field(&event, "delta").or_else(|| str_field(&event, input.field_name())) else {
            return push_unknown(event, out);
        };
        match self.items.find_or_create(
            ItemAddress::of_event(&event),
            ResponsesItemKind::HostedCall(input.item_type()),
            out,
        ) {
            Some(item) => item.hosted.push_input(item.slot, input, delta, out),
            None => push_unknown(event, out),
        }
    }

    fn hosted_input_done(&mut self, input: hosted_call::HostedInput, mut event: Value, out: &mut Vec<ModelEvent>) {
        let text = take_string_field(&mut event, input.field_name());
        if let Some(item) = self.items.find_or_create(
            ItemAddress::of_event(&event),
            ResponsesItemKind::HostedCall(input.item_type()),
            out,
        ) {
            item.hosted.finish_input(item.slot, input, text, out);
        }
    }

    fn partial_image(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(base64) = str_field(&event, "partial_image_b64") else { return push_unknown(event, out) };
        let url = hosted_call::image_data_url(base64, str_field(&event, "output_format"));
        let partial = Some(u32_field(&event, "partial_image_index").unwrap_or_default());
        match self.items.find_or_create(
            ItemAddress::of_event(&event),
            ResponsesItemKind::HostedCall("image_generation_call"),
            out,
        ) {
            Some(item) => out.push(ModelEvent::Delta(ModelDelta::Image { slot: item.slot, part: 0, partial, url })),
            None => push_unknown(event, out),
        }
    }
}

const fn item_kind_of_part(kind: TextPartKind) -> ResponsesItemKind {
    match kind {
        TextPartKind::Text | TextPartKind::Refusal => ResponsesItemKind::Message,
        TextPartKind::ReasoningSummary | TextPartKind::Reasoning => ResponsesItemKind::Reasoning,
    }
}

const fn item_kind_of_call(kind: ArgumentsKind) -> ResponsesItemKind {
    match kind {
        ArgumentsKind::Function => ResponsesItemKind::FunctionCall,
        ArgumentsKind::Custom => ResponsesItemKind::CustomCall,
    }
}

/// The kind and the index of the part that an event is about.
fn parse_part(event: &Value) -> Option<(TextPartKind, u32)> {
    let part_type = non_null_field(event, "part").and_then(|part| str_field(part, "type"));
    let kind = match part_type {
        Some("output_text" | "text") => TextPartKind::Text,
        Some("refusal") => TextPartKind::Refusal,
        Some("reasoning_text") => TextPartKind::Reasoning,
        Some("summary_text") => TextPartKind::ReasoningSummary,
        _ => return None,
    };
    Some((kind, part_index(kind, event)))
}

fn part_index(kind: TextPartKind, event: &Value) -> u32 {
    PartAddress::of_event(kind, event).index
}

pub(super) fn push_unknown(event: Value, out: &mut Vec<ModelEvent>) {
    out.push(ModelEvent::Delta(ModelDelta::Unknown(event)));
}
