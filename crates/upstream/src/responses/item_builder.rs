//! One item of an answer, from its first event to its last.

use super::generated_image;
use super::hosted_call::{self, HostedCallState};
use super::part_sequencer::{PartSequencer, TextPartKind};
use crate::json::{array_field, non_null_field, str_field, u32_field};
use model::content::Annotation;
use model::history::RawItem;
use model::limits::RECORD_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use serde_json::{Value, json};

/// An item is kept as it came if a record can hold it beside what people see of it.
const RAW_ITEM_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;
/// Stands in an item that was too long to keep: it cannot be given back.
pub(super) const TOMBSTONE_KEY: &str = "too_long";

/// What an item becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsesItemKind {
    Message,
    Reasoning,
    FunctionCall,
    /// A call whose arguments are any text: ours are `{"input": …}`.
    CustomCall,
    /// A computer call where we have such a tool.
    ComputerCall,
    /// A tool that the service runs, by its wire type.
    HostedCall(&'static str),
    /// Nothing of ours: its events are passed on as they came.
    Unsupported,
}

impl ResponsesItemKind {
    /// `has_computer`: have we a tool that can be asked?
    pub(super) fn from_json(item: &Value, has_computer: bool) -> Self {
        match str_field(item, "type").unwrap_or_default() {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::FunctionCall,
            "custom_tool_call" => Self::CustomCall,
            "computer_call" if has_computer => Self::ComputerCall,
            wire => hosted_call::hosted_item_type(wire).map_or(Self::Unsupported, Self::HostedCall),
        }
    }

    pub(super) const fn is_call(self) -> bool {
        matches!(self, Self::FunctionCall | Self::CustomCall | Self::ComputerCall)
    }
}

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemProgress {
    Open,
    /// The service broke it off.
    Truncated,
    Complete,
}

/// One item.
#[derive(Clone, Debug)]
pub(super) struct ResponsesItemBuilder {
    pub(super) slot: u32,
    pub(super) kind: ResponsesItemKind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) index: Option<u32>,
    /// The service said that it begins; before that there may be pieces of it.
    pub(super) is_announced: bool,
    /// We said that it begins. A call cannot before its name is known.
    is_started: bool,
    pub(super) progress: ItemProgress,
    pub(super) parts: PartSequencer,
    arguments: ArgumentsBuffer,
    pub(super) hosted: HostedCallState,
}

impl ResponsesItemBuilder {
    pub(super) fn new(slot: u32, kind: ResponsesItemKind, id: Option<String>, index: Option<u32>) -> Self {
        let arguments =
            ArgumentsBuffer { is_custom: kind == ResponsesItemKind::CustomCall, ..ArgumentsBuffer::default() };
        let (call_id, parts, hosted) = (None, PartSequencer::default(), HostedCallState::default());
        let (announced, started, stage) = (false, false, ItemProgress::Open);
        Self {
            slot,
            kind,
            id,
            call_id,
            index,
            is_announced: announced,
            is_started: started,
            progress: stage,
            parts,
            arguments,
            hosted,
        }
    }

    /// The service says what it is, at its beginning or its end.
    pub(super) fn announce(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        self.is_announced = true;
        self.id = self.id.take().or_else(|| str_field(item, "id").map(str::to_owned));
        self.call_id = str_field(item, "call_id").map(str::to_owned).or_else(|| self.call_id.take());
        if self.arguments.announced_text.is_empty() {
            let arguments = str_field(item, "arguments").or_else(|| str_field(item, "input"));
            self.arguments.announced_text = arguments.unwrap_or_default().to_owned();
        }
        self.emit_started(item, out);
        if let ResponsesItemKind::HostedCall(_) = self.kind {
            self.hosted.update_from_item(self.slot, item, out);
        }
    }

    /// Says that it begins, if it is known what it is.
    pub(super) fn emit_started(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let named = || str_field(item, "name").filter(|name| !name.is_empty());
        let call = |name: &str| {
            let provider_call_id = self.call_id.clone().or_else(|| self.id.clone());
            ModelItemKind::ToolCall { name: name.to_owned(), provider_call_id }
        };
        let begun = match self.kind {
            _ if self.is_started => return,
            ResponsesItemKind::Unsupported => None,
            ResponsesItemKind::Message => {
                Some(ModelItemKind::Message { phase: str_field(item, "phase").map(str::to_owned) })
            }
            ResponsesItemKind::Reasoning => Some(ModelItemKind::Reasoning),
            ResponsesItemKind::FunctionCall | ResponsesItemKind::CustomCall => named().map(call),
            ResponsesItemKind::ComputerCall => Some(call("computer")),
            ResponsesItemKind::HostedCall(kind) => {
                Some(ModelItemKind::HostedCall { name: hosted_call::hosted_tool_name(kind).to_owned() })
            }
        };
        if let Some(item) = begun {
            self.is_started = true;
            out.push(ModelEvent::Delta(ModelDelta::Started { slot: self.slot, item }));
            self.arguments.emit_delta(self.slot, out);
        }
    }

    /// More of its arguments.
    pub(super) fn push_arguments(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if self.progress == ItemProgress::Open {
            self.arguments.push(piece);
            self.emit_arguments(out);
        }
    }

    /// All of its arguments.
    pub(super) fn set_arguments(&mut self, whole: &str, out: &mut Vec<ModelEvent>) {
        if self.progress == ItemProgress::Open {
            self.arguments.set_complete(whole);
            self.emit_arguments(out);
        }
    }

    fn emit_arguments(&mut self, out: &mut Vec<ModelEvent>) {
        if self.is_started {
            self.arguments.emit_delta(self.slot, out);
        }
    }

    /// A place in a part refers to something. `event` is passed on when it is nothing that we know.
    pub(super) fn annotate(&mut self, at: usize, annotation: &Value, event: Value, out: &mut Vec<ModelEvent>) {
        match parse_annotation(annotation) {
            Some(annotation) => self.parts.push_annotation(self.slot, at, annotation, out),
            None => {
                self.parts.skip_annotation(at);
                out.push(ModelEvent::Delta(ModelDelta::Unknown(event)));
            }
        }
    }

    /// The finished part's annotations that did not come one by one.
    pub(super) fn annotate_missing(&mut self, at: usize, part: &Value, out: &mut Vec<ModelEvent>) {
        for annotation in array_field(part, "annotations").iter().skip(self.parts.annotation_count(at)) {
            self.annotate(at, annotation, annotation.clone(), out);
        }
    }

    /// The service says that this is all of it: what is missing is added. An item that the service calls incomplete
    /// stays open: nobody may take it for whole.
    pub(super) fn finish(&mut self, origin: &str, item: Value, out: &mut Vec<ModelEvent>) {
        if self.progress != ItemProgress::Open {
            return;
        }
        self.announce(&item, out);
        match self.kind {
            ResponsesItemKind::Message => self.finish_message(&item, out),
            ResponsesItemKind::Reasoning => self.finish_reasoning(&item, out),
            ResponsesItemKind::FunctionCall | ResponsesItemKind::CustomCall => {
                let whole =
                    str_field(&item, if self.kind == ResponsesItemKind::CustomCall { "input" } else { "arguments" });
                self.set_arguments(whole.unwrap_or_default(), out);
            }
            ResponsesItemKind::ComputerCall => self.set_arguments(&hosted_call::computer_arguments(&item), out),
            ResponsesItemKind::HostedCall(_) => {
                for (part, url) in (0..).zip(hosted_call::image_urls(&item)) {
                    let (slot, partial) = (self.slot, None);
                    out.push(ModelEvent::Delta(ModelDelta::Image { slot, part, partial, url }));
                }
            }
            ResponsesItemKind::Unsupported => {}
        }
        self.parts.close_all(self.slot, out);
        if str_field(&item, "status") == Some("incomplete") {
            self.progress = ItemProgress::Truncated;
            return;
        }
        self.close_arguments(out);
        self.progress = ItemProgress::Complete;
        out.push(ModelEvent::Delta(if self.is_started {
            ModelDelta::Done { slot: self.slot, raw: Some(raw_item(origin, item)) }
        } else {
            ModelDelta::Unknown(item)
        }));
    }

    /// The answer is whole, but nobody said so of this item: it is as whole as what came of it.
    pub(super) fn finish_implicitly(&mut self, out: &mut Vec<ModelEvent>) {
        self.parts.close_all(self.slot, out);
        if self.progress != ItemProgress::Open || !self.kind.is_call() {
            return;
        }
        self.close_arguments(out);
        if !self.is_started {
            let nameless = json!({"type": "function_call", "id": self.id, "arguments": self.arguments.received});
            out.push(ModelEvent::Delta(ModelDelta::Unknown(nameless)));
        }
    }

    fn close_arguments(&mut self, out: &mut Vec<ModelEvent>) {
        if self.kind.is_call() {
            self.arguments.close();
            self.emit_arguments(out);
        }
    }

    fn finish_message(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let content = array_field(item, "content");
        let family = |part: &Value| match str_field(part, "type") {
            Some("output_text" | "text") => Some(TextPartKind::Text),
            Some("refusal") => Some(TextPartKind::Refusal),
            _ => None,
        };
        for (number, part) in (0..).zip(content) {
            let Some(of) = family(part) else {
                out.push(ModelEvent::Delta(ModelDelta::Unknown(part.clone())));
                continue;
            };
            let has = |index: u32| content.get(index as usize).is_some_and(|part| family(part) == Some(of));
            let at = self.parts.match_final_part(of, number, has);
            let logprobs = non_empty_logprobs(part);
            self.parts.push_missing_text(self.slot, at, part_text(of, part), logprobs, out);
            self.annotate_missing(at, part, out);
            self.parts.close(self.slot, at, out);
        }
    }

    /// What was thought fills the summary where there is none. Where it was shown already, a summary of it is not.
    fn finish_reasoning(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let thoughts_came = self.parts.has_text(TextPartKind::Reasoning);
        for (of, field) in [(TextPartKind::ReasoningSummary, "summary"), (TextPartKind::Reasoning, "content")] {
            let wanted = self.parts.has_text(of)
                || if of == TextPartKind::ReasoningSummary { !thoughts_came } else { !self.has_summary() };
            if !wanted {
                continue;
            }
            let whole = array_field(item, field);
            for (number, part) in (0..).zip(whole) {
                let at = self.parts.match_final_part(of, number, |index| (index as usize) < whole.len());
                self.parts.push_missing_text(self.slot, at, part_text(of, part), None, out);
                self.parts.close(self.slot, at, out);
            }
        }
    }

    fn has_summary(&self) -> bool {
        self.parts.has_text(TextPartKind::ReasoningSummary)
    }
}

/// The text of a finished part.
pub(super) fn part_text(family: TextPartKind, part: &Value) -> &str {
    let field = if family == TextPartKind::Refusal { "refusal" } else { "text" };
    str_field(part, field).unwrap_or_default()
}

/// Probabilities, if there are any.
pub(super) fn non_empty_logprobs(value: &Value) -> Option<Value> {
    non_null_field(value, "logprobs").filter(|value| value.as_array().is_none_or(|list| !list.is_empty())).cloned()
}

fn parse_annotation(annotation: &Value) -> Option<Annotation> {
    let place = |key| u32_field(annotation, key).unwrap_or_default();
    let named = |key| str_field(annotation, key).map(str::to_owned);
    match str_field(annotation, "type")? {
        "url_citation" => Some(Annotation::UrlCitation {
            url: named("url")?,
            title: named("title"),
            start_index: place("start_index"),
            end_index: place("end_index"),
        }),
        "file_citation" => Some(Annotation::FileCitation {
            file_id: named("file_id")?,
            filename: named("filename"),
            index: place("index"),
        }),
        _ => None,
    }
}

/// The item as it came, to be given back to where it came from. One that is too long leaves a stone in its place: the
/// items beside it must not be given back as if nothing had been there. A picture does not count: it is kept elsewhere.
fn raw_item(origin: &str, item: Value) -> RawItem {
    let drawn = generated_image::generated_image(&item).map_or(0, str::len);
    let is_long = serde_json::to_string(&item).is_ok_and(|text| text.len().saturating_sub(drawn) > RAW_ITEM_BYTES_MAX);
    RawItem { origin: origin.to_owned(), item: if is_long { tombstone(&item) } else { item } }
}

/// What is left of an item that cannot be given back.
pub(super) fn tombstone(item: &Value) -> Value {
    json!({"type": item.get("type"), "id": item.get("id"), TOMBSTONE_KEY: true})
}

/// A call's arguments, on their way from the service's text to ours.
#[derive(Clone, Debug, Default)]
struct ArgumentsBuffer {
    /// All that came.
    received: String,
    /// How much of it we have passed on.
    emitted_bytes: usize,
    /// What the item had when it was announced: believed only if nothing else comes.
    announced_text: String,
    is_custom: bool,
    is_complete: bool,
    /// What we say before and after a custom call's text.
    has_opening: bool,
    is_closed: bool,
}

impl ArgumentsBuffer {
    fn push(&mut self, piece: &str) {
        if !self.is_complete {
            self.received.push_str(piece);
        }
    }

    fn set_complete(&mut self, whole: &str) {
        if whole.is_empty() || self.is_complete {
            return;
        }
        self.is_complete = true;
        if self.emitted_bytes == 0 || whole.starts_with(&self.received) {
            whole.clone_into(&mut self.received);
        }
    }

    fn close(&mut self) {
        if self.received.is_empty() {
            self.received = std::mem::take(&mut self.announced_text);
        }
        // No arguments are an object without any.
        if !self.is_custom && self.received.trim().is_empty() {
            self.received.push_str("{}");
        }
        self.is_complete = true;
        self.is_closed = true;
    }

    fn emit_delta(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        let piece = self.received.get(self.emitted_bytes..).unwrap_or_default();
        let text = if self.is_custom { self.wrap_custom_input(piece) } else { piece.to_owned() };
        self.emitted_bytes = self.received.len();
        if self.is_custom {
            self.has_opening |= !text.is_empty();
        }
        if !text.is_empty() {
            out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text }));
        }
    }

    /// A piece of any text, inside the JSON that ours has to be.
    fn wrap_custom_input(&self, piece: &str) -> String {
        let mut text = String::new();
        if !self.has_opening && (!piece.is_empty() || self.is_closed) {
            text.push_str(r#"{"input":""#);
        }
        let quoted = Value::from(piece).to_string();
        text.push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
        if self.is_closed {
            text.push_str(r#""}"#);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_item_has_a_place_and_what_only_clients_write_is_passed_on() {
        let documented = "message file_search_call function_call function_call_output web_search_call computer_call \
            computer_call_output reasoning program program_output tool_search_call tool_search_output additional_tools \
            compaction image_generation_call code_interpreter_call local_shell_call local_shell_call_output shell_call \
            shell_call_output apply_patch_call apply_patch_call_output mcp_call mcp_list_tools mcp_approval_request \
            mcp_approval_response custom_tool_call custom_tool_call_output";
        let documented: Vec<&str> = documented.split_ascii_whitespace().collect();
        assert_eq!(documented.len(), 28);
        let is_foreign = |kind: &&str| {
            ResponsesItemKind::from_json(&json!({ "type": kind }), false) == ResponsesItemKind::Unsupported
        };
        let foreign: Vec<&str> = documented.into_iter().filter(is_foreign).collect();
        let expected = "function_call_output computer_call_output program program_output tool_search_call \
            tool_search_output additional_tools compaction local_shell_call_output shell_call_output \
            apply_patch_call_output mcp_approval_response custom_tool_call_output";
        assert_eq!(foreign, expected.split_ascii_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn an_item_that_fits_no_record_leaves_a_stone() {
        let long = json!({"type": "message", "id": "msg_1", "content": "x".repeat(RAW_ITEM_BYTES_MAX)});
        assert_eq!(raw_item("here", long).item, json!({"type": "message", "id": "msg_1", TOMBSTONE_KEY: true}));
        let short = json!({"type": "message", "id": "msg_1", "content": "x"});
        assert_eq!(raw_item("here", short.clone()).item, short);
        let drawn = json!({"type": "image_generation_call", "id": "ig_1", "result": "x".repeat(RAW_ITEM_BYTES_MAX)});
        assert_eq!(raw_item("here", drawn.clone()).item, drawn);
    }

    #[test]
    fn arguments_in_any_pieces_are_one_json_text() {
        for cuts in [vec!["say \"hi\"\n", "ü"], vec!["", "say \"hi\"\nü"], vec!["say \"hi\"\nü"]] {
            let (mut arguments, mut out) =
                (ArgumentsBuffer { is_custom: true, ..ArgumentsBuffer::default() }, Vec::new());
            for piece in cuts {
                arguments.push(piece);
                arguments.emit_delta(0, &mut out);
            }
            arguments.close();
            arguments.emit_delta(0, &mut out);
            let text: String = out
                .iter()
                .map(|event| match event {
                    ModelEvent::Delta(ModelDelta::Arguments { text, .. }) => text.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({"input": "say \"hi\"\nü"}));
        }
    }
}
