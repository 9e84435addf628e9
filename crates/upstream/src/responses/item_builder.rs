//! One item of a response, from its first event to its last.

use super::arguments_buffer::ArgumentsBuffer;
use super::event_kind::ArgumentsKind;
use super::hosted_call::{self, HostedCallState};
use super::part_sequencer::{PartSequencer, TextPartKind};
use crate::generated_image::{generated_image, tombstone};
use crate::history::APPROVAL_REQUEST_TYPE;
use crate::json::{array_field, non_null_field, offset_field, str_field, u32_field};
use model::content::Annotation;
use model::history::RawItem;
use model::limits::RECORD_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use serde_json::{Value, json};

/// A raw item is kept if it fits a record together with what people see of it.
const RAW_ITEM_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;
/// A longer quote is not shown, only sent back.
const QUOTE_BYTES_MAX: usize = 8 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsesItemKind {
    Message,
    Reasoning,
    FunctionCall,
    /// A call whose arguments are free-form text.
    CustomCall,
    /// Actions for a tool of ours or the client.
    ComputerCall,
    /// The service asks whether it may call a tool of an MCP server.
    ApprovalRequest,
    /// A call of a tool that the service runs, by its wire type.
    HostedCall(&'static str),
    /// Its events are passed on as `Unknown`.
    Unsupported,
}

impl ResponsesItemKind {
    pub(super) fn from_json(item: &Value) -> Self {
        match str_field(item, "type").unwrap_or_default() {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::FunctionCall,
            "custom_tool_call" => Self::CustomCall,
            "computer_call" => Self::ComputerCall,
            APPROVAL_REQUEST_TYPE => Self::ApprovalRequest,
            wire => hosted_call::hosted_item_type(wire).map_or(Self::Unsupported, Self::HostedCall),
        }
    }

    pub(super) const fn is_call(self) -> bool {
        matches!(self, Self::FunctionCall | Self::CustomCall | Self::ComputerCall | Self::ApprovalRequest)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemProgress {
    Open,
    /// The service ended it before it was complete.
    Truncated,
    Complete,
}

#[derive(Clone, Debug)]
pub(super) struct ResponsesItemBuilder {
    pub(super) slot: u32,
    pub(super) kind: ResponsesItemKind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) index: Option<u32>,
    /// The service announced it; deltas may come earlier.
    pub(super) is_announced: bool,
    /// `Started` was emitted. A call cannot start before its name is known.
    is_started: bool,
    pub(super) progress: ItemProgress,
    pub(super) parts: PartSequencer,
    arguments: ArgumentsBuffer,
    pub(super) hosted: HostedCallState,
}

impl ResponsesItemBuilder {
    pub(super) fn new(slot: u32, kind: ResponsesItemKind, id: Option<String>, index: Option<u32>) -> Self {
        let is_custom = kind == ResponsesItemKind::CustomCall;
        let arguments_kind = if is_custom { ArgumentsKind::Custom } else { ArgumentsKind::Function };
        Self {
            slot,
            kind,
            id,
            call_id: None,
            index,
            is_announced: false,
            is_started: false,
            progress: ItemProgress::Open,
            parts: PartSequencer::default(),
            arguments: ArgumentsBuffer::new(arguments_kind),
            hosted: HostedCallState::default(),
        }
    }

    /// Takes in the item object that the service sends at the beginning.
    pub(super) fn begin(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        self.announce(item, out);
        if let ResponsesItemKind::HostedCall(_) = self.kind {
            self.hosted.update_from_item(self.slot, item, out);
        }
    }

    /// Takes in what the item object has at the beginning and at the end.
    fn announce(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        self.is_announced = true;
        self.id = self.id.take().or_else(|| str_field(item, "id").map(str::to_owned));
        self.call_id = str_field(item, "call_id").map(str::to_owned).or_else(|| self.call_id.take());
        if self.arguments.announced_text.is_empty() {
            let arguments = str_field(item, "arguments").or_else(|| str_field(item, "input"));
            self.arguments.announced_text = arguments.unwrap_or_default().to_owned();
        }
        self.emit_started(item, out);
    }

    /// Emits `Started`, if enough is known.
    pub(super) fn emit_started(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let name = || str_field(item, "name").filter(|name| !name.is_empty());
        let provider_call_id = || self.call_id.clone().or_else(|| self.id.clone());
        let call = |name: &str| ModelItemKind::ToolCall { name: name.to_owned(), provider_call_id: provider_call_id() };
        let started = match self.kind {
            _ if self.is_started => return,
            ResponsesItemKind::Unsupported => None,
            ResponsesItemKind::Message => {
                Some(ModelItemKind::Message { phase: str_field(item, "phase").map(str::to_owned) })
            }
            ResponsesItemKind::Reasoning => Some(ModelItemKind::Reasoning),
            ResponsesItemKind::FunctionCall | ResponsesItemKind::CustomCall => name().map(call),
            ResponsesItemKind::ComputerCall => {
                Some(ModelItemKind::ComputerCall { provider_call_id: provider_call_id() })
            }
            ResponsesItemKind::ApprovalRequest => name().map(|name| ModelItemKind::HostedApproval {
                name: name.to_owned(),
                server_label: str_field(item, "server_label").unwrap_or_default().to_owned(),
                provider_call_id: provider_call_id(),
            }),
            ResponsesItemKind::HostedCall(kind) => {
                let (name, action) = (hosted_call::hosted_tool_name(kind).to_owned(), hosted_call::hosted_action(item));
                self.hosted.set_announced_action(action.as_ref());
                Some(ModelItemKind::HostedCall { name, action })
            }
        };
        if let Some(item) = started {
            self.is_started = true;
            out.push(ModelEvent::Delta(ModelDelta::Started { slot: self.slot, item }));
            self.arguments.emit_delta(self.slot, out);
        }
    }

    /// Returns `false` if the arguments have ended.
    pub(super) fn push_arguments(&mut self, delta: &str, out: &mut Vec<ModelEvent>) -> bool {
        let is_pushed = self.progress == ItemProgress::Open && self.arguments.push(delta);
        self.emit_arguments(out);
        is_pushed
    }

    pub(super) fn set_arguments(&mut self, arguments: &str, out: &mut Vec<ModelEvent>) {
        if self.progress == ItemProgress::Open {
            self.arguments.set_complete(arguments);
            self.emit_arguments(out);
        }
    }

    fn emit_arguments(&mut self, out: &mut Vec<ModelEvent>) {
        if self.is_started {
            self.arguments.emit_delta(self.slot, out);
        }
    }

    /// Adds an annotation to a part, or passes `event` on if its type is unknown.
    pub(super) fn annotate(&mut self, at: usize, annotation: &Value, event: Value, out: &mut Vec<ModelEvent>) {
        match parse_annotation(annotation) {
            Some(annotation) => self.parts.push_annotation(self.slot, at, annotation, out),
            None => {
                self.parts.skip_annotation(at);
                out.push(ModelEvent::Delta(ModelDelta::Unknown(event)));
            }
        }
    }

    /// Adds the annotations of a finished part that had no event of their own.
    pub(super) fn annotate_missing(&mut self, at: usize, part: &Value, out: &mut Vec<ModelEvent>) {
        for annotation in array_field(part, "annotations").iter().skip(self.parts.annotation_count(at)) {
            self.annotate(at, annotation, annotation.clone(), out);
        }
    }

    /// Adds what the finished item has and the stream did not. An item that the service calls incomplete is not `Done`.
    pub(super) fn finish(&mut self, origin: &str, item: Value, out: &mut Vec<ModelEvent>) {
        if self.progress != ItemProgress::Open {
            return;
        }
        self.announce(&item, out);
        match self.kind {
            ResponsesItemKind::Message => self.finish_message(&item, out),
            ResponsesItemKind::Reasoning => self.finish_reasoning(&item, out),
            ResponsesItemKind::FunctionCall | ResponsesItemKind::CustomCall | ResponsesItemKind::ApprovalRequest => {
                let field = if self.kind == ResponsesItemKind::CustomCall { "input" } else { "arguments" };
                self.set_arguments(str_field(&item, field).unwrap_or_default(), out);
            }
            ResponsesItemKind::ComputerCall => self.set_arguments(&hosted_call::computer_arguments(&item), out),
            ResponsesItemKind::HostedCall(_) => {
                self.hosted.finish_from_item(self.slot, &item, out);
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

    /// The response is complete, but this item had no end of its own: its deltas are the whole item.
    pub(super) fn finish_implicitly(&mut self, out: &mut Vec<ModelEvent>) {
        self.parts.close_all(self.slot, out);
        if self.progress != ItemProgress::Open {
            return;
        }
        match self.kind {
            ResponsesItemKind::HostedCall(_) if self.is_started => self.hosted.finish_implicitly(self.slot, out),
            _ if self.kind.is_call() => self.finish_call_implicitly(out),
            _ => {}
        }
    }

    fn finish_call_implicitly(&mut self, out: &mut Vec<ModelEvent>) {
        self.close_arguments(out);
        if !self.is_started {
            let unnamed_call = json!({"type": "function_call", "id": self.id, "arguments": self.arguments.received});
            out.push(ModelEvent::Delta(ModelDelta::Unknown(unnamed_call)));
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
        let kind_of = |part: &Value| match str_field(part, "type") {
            Some("output_text" | "text") => Some(TextPartKind::Text),
            Some("refusal") => Some(TextPartKind::Refusal),
            _ => None,
        };
        for (index, part) in (0..).zip(content) {
            let Some(kind) = kind_of(part) else {
                out.push(ModelEvent::Delta(ModelDelta::Unknown(part.clone())));
                continue;
            };
            let has = |index: u32| content.get(index as usize).is_some_and(|part| kind_of(part) == Some(kind));
            let at = self.parts.match_final_part(kind, index, has);
            let logprobs = non_empty_logprobs(part);
            self.parts.push_missing_text(self.slot, at, part_text(kind, part), logprobs, out);
            self.annotate_missing(at, part, out);
            self.parts.close(self.slot, at, out);
        }
    }

    /// Emits the full reasoning where there is no summary, and no summary where the full reasoning was streamed.
    fn finish_reasoning(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let was_streamed = self.parts.has_text(TextPartKind::Reasoning);
        for (kind, field) in [(TextPartKind::ReasoningSummary, "summary"), (TextPartKind::Reasoning, "content")] {
            let is_shown = self.parts.has_text(kind)
                || if kind == TextPartKind::ReasoningSummary { !was_streamed } else { !self.has_summary() };
            if !is_shown {
                continue;
            }
            let parts = array_field(item, field);
            for (index, part) in (0..).zip(parts) {
                let at = self.parts.match_final_part(kind, index, |index| (index as usize) < parts.len());
                self.parts.push_missing_text(self.slot, at, part_text(kind, part), None, out);
                self.parts.close(self.slot, at, out);
            }
        }
    }

    fn has_summary(&self) -> bool {
        self.parts.has_text(TextPartKind::ReasoningSummary)
    }
}

/// The text of a finished part.
pub(super) fn part_text(kind: TextPartKind, part: &Value) -> &str {
    let field = if kind == TextPartKind::Refusal { "refusal" } else { "text" };
    str_field(part, field).unwrap_or_default()
}

pub(super) fn non_empty_logprobs(value: &Value) -> Option<Value> {
    non_null_field(value, "logprobs").filter(|value| value.as_array().is_none_or(|list| !list.is_empty())).cloned()
}

fn parse_annotation(annotation: &Value) -> Option<Annotation> {
    let index = |key| u32_field(annotation, key).unwrap_or_default();
    let text = |key| str_field(annotation, key).map(str::to_owned);
    match str_field(annotation, "type")? {
        "url_citation" => Some(Annotation::UrlCitation {
            url: text("url")?,
            title: text("title"),
            start_index: offset_field(annotation, "start_index")?,
            end_index: offset_field(annotation, "end_index")?,
        }),
        "file_citation" => Some(Annotation::FileCitation {
            file_id: text("file_id")?,
            filename: text("filename"),
            index: index("index"),
            quote: text("quote").filter(|quote| quote.len() <= QUOTE_BYTES_MAX),
            start_index: u32_field(annotation, "start_index"),
            end_index: u32_field(annotation, "end_index"),
        }),
        "container_file_citation" => Some(Annotation::ContainerFileCitation {
            container_id: text("container_id")?,
            file_id: text("file_id")?,
            filename: text("filename"),
            start_index: offset_field(annotation, "start_index")?,
            end_index: offset_field(annotation, "end_index")?,
        }),
        "file_path" => Some(Annotation::FilePath { file_id: text("file_id")?, index: index("index") }),
        _ => None,
    }
}

/// The raw item, to be sent back to its origin. One that is too long is replaced by a tombstone, because its neighbours
/// must not be sent back as if it had never existed. An image does not count: it is stored elsewhere.
fn raw_item(origin: &str, item: Value) -> RawItem {
    let image_bytes = generated_image(&item).map_or(0, str::len);
    let is_long =
        serde_json::to_string(&item).is_ok_and(|text| text.len().saturating_sub(image_bytes) > RAW_ITEM_BYTES_MAX);
    RawItem { origin: origin.to_owned(), item: if is_long { tombstone(&item) } else { item } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated_image::TOMBSTONE_KEY;

    #[test]
    fn every_documented_item_is_handled_and_client_only_items_are_passed_through() {
        let documented = "message file_search_call function_call function_call_output web_search_call computer_call \
            computer_call_output reasoning program program_output tool_search_call tool_search_output additional_tools \
            compaction image_generation_call code_interpreter_call local_shell_call local_shell_call_output shell_call \
            shell_call_output apply_patch_call apply_patch_call_output mcp_call mcp_list_tools mcp_approval_request \
            mcp_approval_response custom_tool_call custom_tool_call_output";
        let documented: Vec<&str> = documented.split_ascii_whitespace().collect();
        assert_eq!(documented.len(), 28);
        let is_foreign =
            |kind: &&str| ResponsesItemKind::from_json(&json!({ "type": kind })) == ResponsesItemKind::Unsupported;
        let foreign: Vec<&str> = documented.into_iter().filter(is_foreign).collect();
        let expected = "function_call_output computer_call_output program program_output additional_tools compaction \
            local_shell_call_output shell_call_output apply_patch_call_output mcp_approval_response \
            custom_tool_call_output";
        assert_eq!(foreign, expected.split_ascii_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn an_item_larger_than_a_record_leaves_a_placeholder() {
        let long = json!({"type": "message", "id": "msg_1", "content": "x".repeat(RAW_ITEM_BYTES_MAX)});
        assert_eq!(raw_item("here", long).item, json!({"type": "message", "id": "msg_1", TOMBSTONE_KEY: true}));
        let short = json!({"type": "message", "id": "msg_1", "content": "x"});
        assert_eq!(raw_item("here", short.clone()).item, short);
        let drawn = json!({"type": "image_generation_call", "id": "ig_1", "result": "x".repeat(RAW_ITEM_BYTES_MAX)});
        assert_eq!(raw_item("here", drawn.clone()).item, drawn);
    }
}
