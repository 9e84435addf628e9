//! A stream in, deltas out.

use super::event_kind::{ArgumentsKind, ResponsesEventKind};
use super::item_builder::{ItemProgress, ResponsesItemKind, non_empty_logprobs, part_text};
use super::item_index::ResponsesItemIndex;
use super::part_sequencer::{PartDelta, TextPartKind};
use super::{hosted_call, refusal};
use crate::Ingest;
use crate::failure::{self, ProviderError};
use crate::json::{non_null_field, str_field, take_field, take_string_field, u32_field};
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest};
use serde_json::Value;
use sse;

/// Reads the answer to one request. `origin` is where it comes from.
#[must_use]
pub fn new_ingest(origin: String, turn: &ModelRequest) -> Box<dyn Ingest> {
    let has_computer = turn.tools.iter().any(|tool| tool.name == "computer");
    Box::new(ResponsesIngest { origin, has_computer_tool: has_computer, ..ResponsesIngest::default() })
}

/// One answer, as far as it was heard.
#[derive(Debug, Default)]
pub(super) struct ResponsesIngest {
    pub(super) origin: String,
    /// Have we a tool that a computer call can be given to?
    pub(super) has_computer_tool: bool,
    pub(super) items: ResponsesItemIndex,
    pub(super) model: Option<String>,
    pub(super) service_tier: Option<String>,
    /// The terminal event is out.
    pub(super) is_finished: bool,
}

impl Ingest for ResponsesIngest {
    fn on_event(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>) {
        let data = event.data.trim();
        match data {
            _ if self.is_finished => {}
            // Some keep a connection alive with events of nothing.
            "" => {}
            "[DONE]" => self.on_end(out),
            _ => match model::json::parse_lenient_json(data) {
                Ok(value) => self.dispatch_event(value, event.event.as_deref(), out),
                Err(error) => self.fail(failure::invalid_json_failure(data, &error), out),
            },
        }
    }

    fn on_end(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.is_finished {
            self.fail(failure::truncated_stream_failure(), out);
        }
    }
}

impl ResponsesIngest {
    fn dispatch_event(&mut self, event: Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        let heard = match str_field(&event, "type").or(name) {
            // An error that forgot to say that it is one.
            None if non_null_field(&event, "error").is_some() => ResponsesEventKind::Error,
            named => ResponsesEventKind::from_name(named.unwrap_or_default()),
        };
        match heard {
            ResponsesEventKind::Lifecycle => {
                self.update_metadata(non_null_field(&event, "response").unwrap_or(&Value::Null))
            }
            ResponsesEventKind::Terminal(verdict) => self.on_terminal_event(verdict, event, out),
            ResponsesEventKind::Error => {
                let said = ProviderError::from_json(&event);
                self.fail(refusal::classify_stream_error(&said), out);
            }
            ResponsesEventKind::ItemAdded => self.item_added(event, out),
            ResponsesEventKind::ItemDone => self.item_done(event, out),
            ResponsesEventKind::PartAdded => self.part_added(event, out),
            ResponsesEventKind::PartDone => self.part_done(event, out),
            ResponsesEventKind::TextDelta(family) => self.text_delta(family, event, out),
            ResponsesEventKind::TextDone(family) => self.text_done(family, &event, out),
            ResponsesEventKind::AnnotationAdded => self.annotation_added(event, out),
            ResponsesEventKind::ArgumentsDelta(asked) => self.arguments_delta(asked, event, out),
            ResponsesEventKind::ArgumentsDone(asked) => self.arguments_done(asked, event, out),
            ResponsesEventKind::HostedProgress => self.hosted_progress(&event, name, out),
            ResponsesEventKind::HostedInputDelta(given) => self.hosted_input_delta(given, event, out),
            ResponsesEventKind::HostedInputDone(given) => self.hosted_input_done(given, event, out),
            ResponsesEventKind::PartialImage => self.partial_image(event, out),
            ResponsesEventKind::Unknown => push_unknown(event, out),
        }
    }

    /// What is said of the answer as a whole.
    pub(super) fn update_metadata(&mut self, response: &Value) {
        let said = |key| str_field(response, key).map(str::to_owned);
        self.model = said("model").or_else(|| self.model.take());
        self.service_tier = said("service_tier").or_else(|| self.service_tier.take());
    }

    /// It goes no further. What was held back is shown: it was said.
    pub(super) fn fail(&mut self, failure: ModelFailure, out: &mut Vec<ModelEvent>) {
        for item in &mut self.items.items {
            item.parts.close_all(item.slot, out);
        }
        self.is_finished = true;
        out.push(ModelEvent::Failed(failure));
    }

    fn item_added(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = non_null_field(&event, "item") else { return push_unknown(event, out) };
        let kind = ResponsesItemKind::from_json(item, self.has_computer_tool);
        let begins = self.items.find_added(&event, item, kind);
        if let Some(begins) = begins {
            begins.announce(item, out);
        }
        if kind == ResponsesItemKind::Unsupported {
            push_unknown(event, out);
        }
    }

    fn item_done(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = non_null_field(&event, "item") else { return push_unknown(event, out) };
        let kind = ResponsesItemKind::from_json(item, self.has_computer_tool);
        let Some(ends) = self.items.find_done(&event, item, kind) else { return };
        if kind == ResponsesItemKind::Unsupported {
            ends.progress = ItemProgress::Complete;
            return push_unknown(event, out);
        }
        let item = take_field(&mut event, "item").unwrap_or_default();
        ends.finish(&self.origin, item, out);
    }

    fn part_added(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let Some((family, number)) = parse_part(&event) else { return push_unknown(event, out) };
        let Some(item) = self.items.find_or_create(&event, item_kind_of_part(family)) else { return };
        item.emit_started(&Value::Null, out);
        let at = item.parts.find_or_insert(family, number);
        let mut part = take_field(&mut event, "part").unwrap_or_default();
        let field = if family == TextPartKind::Refusal { "refusal" } else { "text" };
        if let Some(words) = take_string_field(&mut part, field).filter(|words| !words.is_empty()) {
            item.parts.push_delta(item.slot, at, PartDelta::Text(words, None), out);
        }
    }

    fn part_done(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some((family, number)) = parse_part(&event) else { return push_unknown(event, out) };
        let Some(item) = self.items.find_or_create(&event, item_kind_of_part(family)) else { return };
        item.emit_started(&Value::Null, out);
        let part = non_null_field(&event, "part");
        let at = item.parts.find_ending(family, number, part.map(|part| part_text(family, part)).unwrap_or_default());
        if let Some(part) = part {
            item.parts.push_missing_text(item.slot, at, part_text(family, part), non_empty_logprobs(part), out);
            item.annotate_missing(at, part, out);
        }
        item.parts.close(item.slot, at, out);
    }

    fn text_delta(&mut self, family: TextPartKind, mut event: Value, out: &mut Vec<ModelEvent>) {
        if str_field(&event, "delta").is_none() {
            return push_unknown(event, out);
        }
        let Some(item) = self.items.find_or_create(&event, item_kind_of_part(family)) else { return };
        item.emit_started(&Value::Null, out);
        let at = item.parts.find_or_insert(family, part_index(family, &event));
        let logprobs = non_empty_logprobs(&event);
        let words = take_string_field(&mut event, "delta").unwrap_or_default();
        if !words.is_empty() {
            item.parts.push_delta(item.slot, at, PartDelta::Text(words, logprobs), out);
        }
    }

    fn text_done(&mut self, family: TextPartKind, event: &Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.find_or_create(event, item_kind_of_part(family)) else { return };
        item.emit_started(&Value::Null, out);
        let whole = part_text(family, event);
        let at = item.parts.find_ending(family, part_index(family, event), whole);
        item.parts.push_missing_text(item.slot, at, whole, non_empty_logprobs(event), out);
        item.parts.close(item.slot, at, out);
    }

    fn annotation_added(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.find_or_create(&event, ResponsesItemKind::Message) else { return };
        item.emit_started(&Value::Null, out);
        let at = item.parts.find_or_insert(TextPartKind::Text, part_index(TextPartKind::Text, &event));
        let annotation = non_null_field(&event, "annotation").cloned().unwrap_or_default();
        item.annotate(at, &annotation, event, out);
    }

    fn arguments_delta(&mut self, asked: ArgumentsKind, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(piece) = str_field(&event, "delta") else { return push_unknown(event, out) };
        if let Some(item) = self.items.find_or_create(&event, item_kind_of_call(asked)) {
            item.push_arguments(piece, out);
        }
    }

    fn arguments_done(&mut self, asked: ArgumentsKind, event: Value, out: &mut Vec<ModelEvent>) {
        let field = if asked == ArgumentsKind::Custom { "input" } else { "arguments" };
        let Some(whole) = str_field(&event, field) else { return push_unknown(event, out) };
        if let Some(item) = self.items.find_or_create(&event, item_kind_of_call(asked)) {
            // Only some services repeat the name here; where the item was not announced it is the first we hear of it.
            item.emit_started(&event, out);
            item.set_arguments(whole, out);
        }
    }

    fn hosted_progress(&mut self, event: &Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        let named = str_field(event, "type").or(name).unwrap_or_default();
        let Some((kind, state)) = hosted_call::parse_progress_event(named.strip_prefix("response.").unwrap_or(named))
        else {
            return;
        };
        // Our own tool's call moves on when we run it.
        if kind == "computer_call" && self.has_computer_tool {
            return;
        }
        if let Some(item) = self.items.find_or_create(event, ResponsesItemKind::HostedCall(kind)) {
            item.emit_started(&Value::Null, out);
            item.hosted.update_state(item.slot, state, None, out);
        }
    }

    fn hosted_input_delta(&mut self, given: hosted_call::HostedInput, event: Value, out: &mut Vec<ModelEvent>) {
        // A command may begin with what there is of it.
        let Some(piece) = str_field(&event, "delta").or_else(|| str_field(&event, given.field_name())) else {
            return push_unknown(event, out);
        };
        if let Some(item) = self.items.find_or_create(&event, ResponsesItemKind::HostedCall(given.item_type())) {
            item.emit_started(&Value::Null, out);
            item.hosted.push_input(item.slot, given, piece, out);
        }
    }

    fn hosted_input_done(&mut self, given: hosted_call::HostedInput, mut event: Value, out: &mut Vec<ModelEvent>) {
        let whole = take_string_field(&mut event, given.field_name());
        if let Some(item) = self.items.find_or_create(&event, ResponsesItemKind::HostedCall(given.item_type())) {
            item.emit_started(&Value::Null, out);
            item.hosted.finish_input(item.slot, given, whole, out);
        }
    }

    fn partial_image(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(base64) = str_field(&event, "partial_image_b64") else { return push_unknown(event, out) };
        let url = hosted_call::image_data_url(base64, str_field(&event, "output_format"));
        let partial = Some(u32_field(&event, "partial_image_index").unwrap_or_default());
        if let Some(item) = self.items.find_or_create(&event, ResponsesItemKind::HostedCall("image_generation_call")) {
            item.emit_started(&Value::Null, out);
            out.push(ModelEvent::Delta(ModelDelta::Image { slot: item.slot, part: 0, partial, url }));
        }
    }
}

/// Whose parts these are.
const fn item_kind_of_part(family: TextPartKind) -> ResponsesItemKind {
    match family {
        TextPartKind::Text | TextPartKind::Refusal => ResponsesItemKind::Message,
        TextPartKind::ReasoningSummary | TextPartKind::Reasoning => ResponsesItemKind::Reasoning,
    }
}

const fn item_kind_of_call(asked: ArgumentsKind) -> ResponsesItemKind {
    match asked {
        ArgumentsKind::Function => ResponsesItemKind::FunctionCall,
        ArgumentsKind::Custom => ResponsesItemKind::CustomCall,
    }
}

/// The part that an event means: what it is made of, and its number in the item.
fn parse_part(event: &Value) -> Option<(TextPartKind, u32)> {
    let kind = non_null_field(event, "part").and_then(|part| str_field(part, "type"));
    let family = match kind {
        Some("output_text" | "text") => TextPartKind::Text,
        Some("refusal") => TextPartKind::Refusal,
        Some("reasoning_text") => TextPartKind::Reasoning,
        Some("summary_text") => TextPartKind::ReasoningSummary,
        _ => return None,
    };
    Some((family, part_index(family, event)))
}

fn part_index(family: TextPartKind, event: &Value) -> u32 {
    let field = if family == TextPartKind::ReasoningSummary { "summary_index" } else { "content_index" };
    u32_field(event, field).unwrap_or_default()
}

pub(super) fn push_unknown(event: Value, out: &mut Vec<ModelEvent>) {
    out.push(ModelEvent::Delta(ModelDelta::Unknown(event)));
}
