//! One item of an answer, from its first event to its last.

use super::drawn;
use super::hosted::{self, Hosted};
use super::part::{Family, Parts};
use crate::json::{index, list, present, text};
use model::block::Annotation;
use model::limits::RECORD_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use model::record::RawItem;
use serde_json::{Value, json};

/// An item is kept as it came if a record can hold it beside what people see of it.
const RAW_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;
/// Stands in an item that was too long to keep: it cannot be given back.
pub(super) const TOO_LONG: &str = "too_long";

/// What an item becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Function,
    /// A call whose arguments are any text: ours are `{"input": …}`.
    Custom,
    /// A computer call where we have such a tool.
    Computer,
    /// A tool that the service runs, by its wire type.
    Hosted(&'static str),
    /// Nothing of ours: its events are passed on as they came.
    Foreign,
}

impl Kind {
    /// `has_computer`: have we a tool that can be asked?
    pub(super) fn of(item: &Value, has_computer: bool) -> Self {
        match text(item, "type").unwrap_or_default() {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::Function,
            "custom_tool_call" => Self::Custom,
            "computer_call" if has_computer => Self::Computer,
            wire => hosted::kind(wire).map_or(Self::Foreign, Self::Hosted),
        }
    }

    pub(super) const fn is_call(self) -> bool {
        matches!(self, Self::Function | Self::Custom | Self::Computer)
    }
}

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// The service broke it off.
    Cut,
    Whole,
}

/// One item.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) slot: u32,
    pub(super) kind: Kind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) index: Option<u32>,
    /// The service said that it begins; before that there may be pieces of it.
    pub(super) announced: bool,
    /// We said that it begins. A call cannot before its name is known.
    started: bool,
    pub(super) stage: Stage,
    pub(super) parts: Parts,
    arguments: Arguments,
    pub(super) hosted: Hosted,
}

impl Item {
    pub(super) fn new(slot: u32, kind: Kind, id: Option<String>, index: Option<u32>) -> Self {
        let arguments = Arguments { is_custom: kind == Kind::Custom, ..Arguments::default() };
        let (call_id, parts, hosted) = (None, Parts::default(), Hosted::default());
        let (announced, started, stage) = (false, false, Stage::Open);
        Self { slot, kind, id, call_id, index, announced, started, stage, parts, arguments, hosted }
    }

    /// The service says what it is, at its beginning or its end.
    pub(super) fn announce(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        self.announced = true;
        self.id = self.id.take().or_else(|| text(item, "id").map(str::to_owned));
        self.call_id = text(item, "call_id").map(str::to_owned).or_else(|| self.call_id.take());
        if self.arguments.announced.is_empty() {
            let arguments = text(item, "arguments").or_else(|| text(item, "input"));
            self.arguments.announced = arguments.unwrap_or_default().to_owned();
        }
        self.start(item, out);
        if let Kind::Hosted(_) = self.kind {
            self.hosted.told(self.slot, item, out);
        }
    }

    /// Says that it begins, if it is known what it is.
    pub(super) fn start(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let named = || text(item, "name").filter(|name| !name.is_empty());
        let call = |name: &str| {
            let provider_call_id = self.call_id.clone().or_else(|| self.id.clone());
            ModelItemKind::ToolCall { name: name.to_owned(), provider_call_id }
        };
        let begun = match self.kind {
            _ if self.started => return,
            Kind::Foreign => None,
            Kind::Message => Some(ModelItemKind::Message { phase: text(item, "phase").map(str::to_owned) }),
            Kind::Reasoning => Some(ModelItemKind::Reasoning),
            Kind::Function | Kind::Custom => named().map(call),
            Kind::Computer => Some(call("computer")),
            Kind::Hosted(kind) => Some(ModelItemKind::HostedCall { name: hosted::name(kind).to_owned() }),
        };
        if let Some(item) = begun {
            self.started = true;
            out.push(ModelEvent::Delta(ModelDelta::Started { slot: self.slot, item }));
            self.arguments.send(self.slot, out);
        }
    }

    /// More of its arguments.
    pub(super) fn more_arguments(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if self.stage == Stage::Open {
            self.arguments.more(piece);
            self.send_arguments(out);
        }
    }

    /// All of its arguments.
    pub(super) fn all_arguments(&mut self, whole: &str, out: &mut Vec<ModelEvent>) {
        if self.stage == Stage::Open {
            self.arguments.all(whole);
            self.send_arguments(out);
        }
    }

    fn send_arguments(&mut self, out: &mut Vec<ModelEvent>) {
        if self.started {
            self.arguments.send(self.slot, out);
        }
    }

    /// A place in a part refers to something. `event` is passed on when it is nothing that we know.
    pub(super) fn annotate(&mut self, at: usize, annotation: &Value, event: Value, out: &mut Vec<ModelEvent>) {
        match read_annotation(annotation) {
            Some(annotation) => self.parts.annotate(self.slot, at, annotation, out),
            None => {
                self.parts.skip_annotation(at);
                out.push(ModelEvent::Delta(ModelDelta::Unknown(event)));
            }
        }
    }

    /// The finished part's annotations that did not come one by one.
    pub(super) fn annotate_rest(&mut self, at: usize, part: &Value, out: &mut Vec<ModelEvent>) {
        for annotation in list(part, "annotations").iter().skip(self.parts.annotations(at)) {
            self.annotate(at, annotation, annotation.clone(), out);
        }
    }

    /// The service says that this is all of it: what is missing is added. An item that the service calls incomplete
    /// stays open: nobody may take it for whole.
    pub(super) fn finish(&mut self, origin: &str, item: Value, out: &mut Vec<ModelEvent>) {
        if self.stage != Stage::Open {
            return;
        }
        self.announce(&item, out);
        match self.kind {
            Kind::Message => self.finish_message(&item, out),
            Kind::Reasoning => self.finish_reasoning(&item, out),
            Kind::Function | Kind::Custom => {
                let whole = text(&item, if self.kind == Kind::Custom { "input" } else { "arguments" });
                self.all_arguments(whole.unwrap_or_default(), out);
            }
            Kind::Computer => self.all_arguments(&hosted::computer_arguments(&item), out),
            Kind::Hosted(_) => {
                for (part, url) in (0..).zip(hosted::pictures(&item)) {
                    let (slot, partial) = (self.slot, None);
                    out.push(ModelEvent::Delta(ModelDelta::Image { slot, part, partial, url }));
                }
            }
            Kind::Foreign => {}
        }
        self.parts.close_all(self.slot, out);
        if text(&item, "status") == Some("incomplete") {
            self.stage = Stage::Cut;
            return;
        }
        self.close_arguments(out);
        self.stage = Stage::Whole;
        out.push(ModelEvent::Delta(if self.started {
            ModelDelta::Done { slot: self.slot, raw: Some(raw(origin, item)) }
        } else {
            ModelDelta::Unknown(item)
        }));
    }

    /// The answer is whole, but nobody said so of this item: it is as whole as what came of it.
    pub(super) fn settle(&mut self, out: &mut Vec<ModelEvent>) {
        self.parts.close_all(self.slot, out);
        if self.stage != Stage::Open || !self.kind.is_call() {
            return;
        }
        self.close_arguments(out);
        if !self.started {
            let nameless = json!({"type": "function_call", "id": self.id, "arguments": self.arguments.theirs});
            out.push(ModelEvent::Delta(ModelDelta::Unknown(nameless)));
        }
    }

    fn close_arguments(&mut self, out: &mut Vec<ModelEvent>) {
        if self.kind.is_call() {
            self.arguments.close();
            self.send_arguments(out);
        }
    }

    fn finish_message(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let content = list(item, "content");
        let family = |part: &Value| match text(part, "type") {
            Some("output_text" | "text") => Some(Family::Text),
            Some("refusal") => Some(Family::Refusal),
            _ => None,
        };
        for (number, part) in (0..).zip(content) {
            let Some(of) = family(part) else {
                out.push(ModelEvent::Delta(ModelDelta::Unknown(part.clone())));
                continue;
            };
            let has = |index: u32| content.get(index as usize).is_some_and(|part| family(part) == Some(of));
            let at = self.parts.matching(of, number, has);
            let logprobs = logprobs(part);
            self.parts.complete(self.slot, at, words(of, part), logprobs, out);
            self.annotate_rest(at, part, out);
            self.parts.close(self.slot, at, out);
        }
    }

    /// What was thought fills the summary where there is none. Where it was shown already, a summary of it is not.
    fn finish_reasoning(&mut self, item: &Value, out: &mut Vec<ModelEvent>) {
        let thoughts_came = self.parts.any(Family::Thought);
        for (of, field) in [(Family::Summary, "summary"), (Family::Thought, "content")] {
            let wanted = self.parts.any(of) || if of == Family::Summary { !thoughts_came } else { !self.has_summary() };
            if !wanted {
                continue;
            }
            let whole = list(item, field);
            for (number, part) in (0..).zip(whole) {
                let at = self.parts.matching(of, number, |index| (index as usize) < whole.len());
                self.parts.complete(self.slot, at, words(of, part), None, out);
                self.parts.close(self.slot, at, out);
            }
        }
    }

    fn has_summary(&self) -> bool {
        self.parts.any(Family::Summary)
    }
}

/// The text of a finished part.
pub(super) fn words(family: Family, part: &Value) -> &str {
    let field = if family == Family::Refusal { "refusal" } else { "text" };
    text(part, field).unwrap_or_default()
}

/// Probabilities, if there are any.
pub(super) fn logprobs(value: &Value) -> Option<Value> {
    present(value, "logprobs").filter(|value| value.as_array().is_none_or(|list| !list.is_empty())).cloned()
}

fn read_annotation(annotation: &Value) -> Option<Annotation> {
    let place = |key| index(annotation, key).unwrap_or_default();
    let named = |key| text(annotation, key).map(str::to_owned);
    match text(annotation, "type")? {
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
fn raw(origin: &str, item: Value) -> RawItem {
    let drawn = drawn::picture(&item).map_or(0, str::len);
    let is_long = serde_json::to_string(&item).is_ok_and(|text| text.len().saturating_sub(drawn) > RAW_BYTES_MAX);
    RawItem { origin: origin.to_owned(), item: if is_long { stone(&item) } else { item } }
}

/// What is left of an item that cannot be given back.
pub(super) fn stone(item: &Value) -> Value {
    json!({"type": item.get("type"), "id": item.get("id"), TOO_LONG: true})
}

/// A call's arguments, on their way from the service's text to ours.
#[derive(Clone, Debug, Default)]
struct Arguments {
    /// All that came.
    theirs: String,
    /// How much of it we have passed on.
    sent: usize,
    /// What the item had when it was announced: believed only if nothing else comes.
    announced: String,
    is_custom: bool,
    is_whole: bool,
    /// What we say before and after a custom call's text.
    opened: bool,
    closed: bool,
}

impl Arguments {
    fn more(&mut self, piece: &str) {
        if !self.is_whole {
            self.theirs.push_str(piece);
        }
    }

    fn all(&mut self, whole: &str) {
        if whole.is_empty() || self.is_whole {
            return;
        }
        self.is_whole = true;
        if self.sent == 0 || whole.starts_with(&self.theirs) {
            whole.clone_into(&mut self.theirs);
        }
    }

    fn close(&mut self) {
        if self.theirs.is_empty() {
            self.theirs = std::mem::take(&mut self.announced);
        }
        // No arguments are an object without any.
        if !self.is_custom && self.theirs.trim().is_empty() {
            self.theirs.push_str("{}");
        }
        self.is_whole = true;
        self.closed = true;
    }

    fn send(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        let piece = self.theirs.get(self.sent..).unwrap_or_default();
        let text = if self.is_custom { self.wrapped(piece) } else { piece.to_owned() };
        self.sent = self.theirs.len();
        if self.is_custom {
            self.opened |= !text.is_empty();
        }
        if !text.is_empty() {
            out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text }));
        }
    }

    /// A piece of any text, inside the JSON that ours has to be.
    fn wrapped(&self, piece: &str) -> String {
        let mut text = String::new();
        if !self.opened && (!piece.is_empty() || self.closed) {
            text.push_str(r#"{"input":""#);
        }
        let quoted = Value::from(piece).to_string();
        text.push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
        if self.closed {
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
        let is_foreign = |kind: &&str| Kind::of(&json!({ "type": kind }), false) == Kind::Foreign;
        let foreign: Vec<&str> = documented.into_iter().filter(is_foreign).collect();
        let expected = "function_call_output computer_call_output program program_output tool_search_call \
            tool_search_output additional_tools compaction local_shell_call_output shell_call_output \
            apply_patch_call_output mcp_approval_response custom_tool_call_output";
        assert_eq!(foreign, expected.split_ascii_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn an_item_that_fits_no_record_leaves_a_stone() {
        let long = json!({"type": "message", "id": "msg_1", "content": "x".repeat(RAW_BYTES_MAX)});
        assert_eq!(raw("here", long).item, json!({"type": "message", "id": "msg_1", TOO_LONG: true}));
        let short = json!({"type": "message", "id": "msg_1", "content": "x"});
        assert_eq!(raw("here", short.clone()).item, short);
        let drawn = json!({"type": "image_generation_call", "id": "ig_1", "result": "x".repeat(RAW_BYTES_MAX)});
        assert_eq!(raw("here", drawn.clone()).item, drawn);
    }

    #[test]
    fn arguments_in_any_pieces_are_one_json_text() {
        for cuts in [vec!["say \"hi\"\n", "ü"], vec!["", "say \"hi\"\nü"], vec!["say \"hi\"\nü"]] {
            let (mut arguments, mut out) = (Arguments { is_custom: true, ..Arguments::default() }, Vec::new());
            for piece in cuts {
                arguments.more(piece);
                arguments.send(0, &mut out);
            }
            arguments.close();
            arguments.send(0, &mut out);
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
