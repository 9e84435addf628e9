//! A stream in, deltas out.

use super::event::{Asked, Heard};
use super::item::{Kind, Stage, logprobs, words};
use super::part::{Family, Piece};
use super::place::Items;
use super::{hosted, refusal};
use crate::Ingest;
use crate::failure::{self, Complaint};
use crate::json::{index, present, take, take_text, text};
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest};
use serde_json::Value;
use sse;

/// Reads the answer to one request. `origin` is where it comes from.
#[must_use]
pub fn ingest(origin: String, turn: &ModelRequest) -> Box<dyn Ingest> {
    let has_computer = turn.tools.iter().any(|tool| tool.name == "computer");
    Box::new(Answer { origin, has_computer, ..Answer::default() })
}

/// One answer, as far as it was heard.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) origin: String,
    /// Have we a tool that a computer call can be given to?
    pub(super) has_computer: bool,
    pub(super) items: Items,
    pub(super) model: Option<String>,
    pub(super) service_tier: Option<String>,
    /// The terminal event is out.
    pub(super) over: bool,
}

impl Ingest for Answer {
    fn event(&mut self, event: &sse::Event, out: &mut Vec<ModelEvent>) {
        let data = event.data.trim();
        match data {
            _ if self.over => {}
            // Some keep a connection alive with events of nothing.
            "" => {}
            "[DONE]" => self.end(out),
            _ => match model::json::parse_lenient_json(data) {
                Ok(value) => self.heard(value, event.event.as_deref(), out),
                Err(error) => self.fail(failure::unreadable(data, &error), out),
            },
        }
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.over {
            self.fail(failure::incomplete(), out);
        }
    }
}

impl Answer {
    fn heard(&mut self, event: Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        let heard = match text(&event, "type").or(name) {
            // An error that forgot to say that it is one.
            None if present(&event, "error").is_some() => Heard::Error,
            named => Heard::of(named.unwrap_or_default()),
        };
        match heard {
            Heard::Life => self.life(present(&event, "response").unwrap_or(&Value::Null)),
            Heard::Over(verdict) => self.finish(verdict, event, out),
            Heard::Error => {
                let said = Complaint::of(&event);
                self.fail(refusal::of_stream(&said), out);
            }
            Heard::ItemAdded => self.item_added(event, out),
            Heard::ItemDone => self.item_done(event, out),
            Heard::PartAdded => self.part_added(event, out),
            Heard::PartDone => self.part_done(event, out),
            Heard::Piece(family) => self.piece(family, event, out),
            Heard::Whole(family) => self.whole(family, &event, out),
            Heard::Annotation => self.annotation(event, out),
            Heard::Arguments(asked) => self.arguments(asked, event, out),
            Heard::ArgumentsDone(asked) => self.arguments_done(asked, event, out),
            Heard::Hosted => self.hosted(&event, name, out),
            Heard::Given(given) => self.given(given, event, out),
            Heard::GivenDone(given) => self.given_done(given, event, out),
            Heard::Picture => self.picture(event, out),
            Heard::Unknown => unknown(event, out),
        }
    }

    /// What is said of the answer as a whole.
    pub(super) fn life(&mut self, response: &Value) {
        let said = |key| text(response, key).map(str::to_owned);
        self.model = said("model").or_else(|| self.model.take());
        self.service_tier = said("service_tier").or_else(|| self.service_tier.take());
    }

    /// It goes no further. What was held back is shown: it was said.
    pub(super) fn fail(&mut self, failure: ModelFailure, out: &mut Vec<ModelEvent>) {
        for item in &mut self.items.list {
            item.parts.close_all(item.slot, out);
        }
        self.over = true;
        out.push(ModelEvent::Failed(failure));
    }

    fn item_added(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = present(&event, "item") else { return unknown(event, out) };
        let kind = Kind::of(item, self.has_computer);
        let begins = self.items.beginning(&event, item, kind);
        if let Some(begins) = begins {
            begins.announce(item, out);
        }
        if kind == Kind::Foreign {
            unknown(event, out);
        }
    }

    fn item_done(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = present(&event, "item") else { return unknown(event, out) };
        let kind = Kind::of(item, self.has_computer);
        let Some(ends) = self.items.ending(&event, item, kind) else { return };
        if kind == Kind::Foreign {
            ends.stage = Stage::Whole;
            return unknown(event, out);
        }
        let item = take(&mut event, "item").unwrap_or_default();
        ends.finish(&self.origin, item, out);
    }

    fn part_added(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let Some((family, number)) = part_of(&event) else { return unknown(event, out) };
        let Some(item) = self.items.meant(&event, home(family)) else { return };
        item.start(&Value::Null, out);
        let at = item.parts.at(family, number);
        let mut part = take(&mut event, "part").unwrap_or_default();
        let field = if family == Family::Refusal { "refusal" } else { "text" };
        if let Some(words) = take_text(&mut part, field).filter(|words| !words.is_empty()) {
            item.parts.piece(item.slot, at, Piece::Text(words, None), out);
        }
    }

    fn part_done(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some((family, number)) = part_of(&event) else { return unknown(event, out) };
        let Some(item) = self.items.meant(&event, home(family)) else { return };
        item.start(&Value::Null, out);
        let part = present(&event, "part");
        let at = item.parts.ending(family, number, part.map(|part| words(family, part)).unwrap_or_default());
        if let Some(part) = part {
            item.parts.complete(item.slot, at, words(family, part), logprobs(part), out);
            item.annotate_rest(at, part, out);
        }
        item.parts.close(item.slot, at, out);
    }

    fn piece(&mut self, family: Family, mut event: Value, out: &mut Vec<ModelEvent>) {
        if text(&event, "delta").is_none() {
            return unknown(event, out);
        }
        let Some(item) = self.items.meant(&event, home(family)) else { return };
        item.start(&Value::Null, out);
        let at = item.parts.at(family, number_of(family, &event));
        let logprobs = logprobs(&event);
        let words = take_text(&mut event, "delta").unwrap_or_default();
        if !words.is_empty() {
            item.parts.piece(item.slot, at, Piece::Text(words, logprobs), out);
        }
    }

    fn whole(&mut self, family: Family, event: &Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.meant(event, home(family)) else { return };
        item.start(&Value::Null, out);
        let whole = words(family, event);
        let at = item.parts.ending(family, number_of(family, event), whole);
        item.parts.complete(item.slot, at, whole, logprobs(event), out);
        item.parts.close(item.slot, at, out);
    }

    fn annotation(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.meant(&event, Kind::Message) else { return };
        item.start(&Value::Null, out);
        let at = item.parts.at(Family::Text, number_of(Family::Text, &event));
        let annotation = present(&event, "annotation").cloned().unwrap_or_default();
        item.annotate(at, &annotation, event, out);
    }

    fn arguments(&mut self, asked: Asked, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(piece) = text(&event, "delta") else { return unknown(event, out) };
        if let Some(item) = self.items.meant(&event, called(asked)) {
            item.more_arguments(piece, out);
        }
    }

    fn arguments_done(&mut self, asked: Asked, event: Value, out: &mut Vec<ModelEvent>) {
        let field = if asked == Asked::Custom { "input" } else { "arguments" };
        let Some(whole) = text(&event, field) else { return unknown(event, out) };
        if let Some(item) = self.items.meant(&event, called(asked)) {
            // Only some services repeat the name here; where the item was not announced it is the first we hear of it.
            item.start(&event, out);
            item.all_arguments(whole, out);
        }
    }

    fn hosted(&mut self, event: &Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        let named = text(event, "type").or(name).unwrap_or_default();
        let Some((kind, state)) = hosted::moved(named.strip_prefix("response.").unwrap_or(named)) else { return };
        // Our own tool's call moves on when we run it.
        if kind == "computer_call" && self.has_computer {
            return;
        }
        if let Some(item) = self.items.meant(event, Kind::Hosted(kind)) {
            item.start(&Value::Null, out);
            item.hosted.moved(item.slot, state, None, out);
        }
    }

    fn given(&mut self, given: hosted::Given, event: Value, out: &mut Vec<ModelEvent>) {
        // A command may begin with what there is of it.
        let Some(piece) = text(&event, "delta").or_else(|| text(&event, given.field())) else {
            return unknown(event, out);
        };
        if let Some(item) = self.items.meant(&event, Kind::Hosted(given.kind())) {
            item.start(&Value::Null, out);
            item.hosted.given(item.slot, given, piece, out);
        }
    }

    fn given_done(&mut self, given: hosted::Given, mut event: Value, out: &mut Vec<ModelEvent>) {
        let whole = take_text(&mut event, given.field());
        if let Some(item) = self.items.meant(&event, Kind::Hosted(given.kind())) {
            item.start(&Value::Null, out);
            item.hosted.given_whole(item.slot, given, whole, out);
        }
    }

    fn picture(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let Some(base64) = text(&event, "partial_image_b64") else { return unknown(event, out) };
        let url = hosted::picture(base64, text(&event, "output_format"));
        let partial = Some(index(&event, "partial_image_index").unwrap_or_default());
        if let Some(item) = self.items.meant(&event, Kind::Hosted("image_generation_call")) {
            item.start(&Value::Null, out);
            out.push(ModelEvent::Delta(ModelDelta::Image { slot: item.slot, part: 0, partial, url }));
        }
    }
}

/// Whose parts these are.
const fn home(family: Family) -> Kind {
    match family {
        Family::Text | Family::Refusal => Kind::Message,
        Family::Summary | Family::Thought => Kind::Reasoning,
    }
}

const fn called(asked: Asked) -> Kind {
    match asked {
        Asked::Function => Kind::Function,
        Asked::Custom => Kind::Custom,
    }
}

/// The part that an event means: what it is made of, and its number in the item.
fn part_of(event: &Value) -> Option<(Family, u32)> {
    let kind = present(event, "part").and_then(|part| text(part, "type"));
    let family = match kind {
        Some("output_text" | "text") => Family::Text,
        Some("refusal") => Family::Refusal,
        Some("reasoning_text") => Family::Thought,
        Some("summary_text") => Family::Summary,
        _ => return None,
    };
    Some((family, number_of(family, event)))
}

fn number_of(family: Family, event: &Value) -> u32 {
    let field = if family == Family::Summary { "summary_index" } else { "content_index" };
    index(event, field).unwrap_or_default()
}

pub(super) fn unknown(event: Value, out: &mut Vec<ModelEvent>) {
    out.push(ModelEvent::Delta(ModelDelta::Unknown(event)));
}
