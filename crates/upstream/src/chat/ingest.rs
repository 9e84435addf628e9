//! Chunks in, deltas out.

use super::calls::Calls;
use super::message::Message;
use super::refusal;
use super::thoughts::{Thought, Thoughts};
use super::usage::{self, Finish};
use crate::failure::{self, Trouble};
use crate::{Ingest, json};
use model::event::StopReason;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind, ModelRequest, ModelTurnEnd};
use model::usage::Usage;
use serde_json::{Value, json};
use sse;

/// What says that nothing more comes.
const DONE: &str = "[DONE]";

/// Reads the answer to one request. `origin` is where it comes from.
#[must_use]
pub fn ingest(origin: String, _turn: &ModelRequest) -> Box<dyn Ingest> {
    Box::new(ChatIngest { origin, ..ChatIngest::default() })
}

/// Numbers for the items of a turn: the dialect has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(u32);

impl Slots {
    pub(super) const fn next(&mut self) -> u32 {
        let slot = self.0;
        self.0 = slot.saturating_add(1);
        slot
    }
}

/// One answer, as far as it was heard.
///
/// Thoughts are done when the answer begins, and a message when a call does. What goes on after that all the same is an
/// item of its own, which stays open until the end: a service that mixes everything makes five items, not a thousand.
#[derive(Debug, Default)]
struct ChatIngest {
    origin: String,
    /// The terminal event is out.
    over: bool,
    /// A chunk with a choice came.
    heard: bool,
    slots: Slots,
    thoughts: Option<Thoughts>,
    has_thought: bool,
    message: Option<Message>,
    has_spoken: bool,
    calls: Calls,
    finish: Option<String>,
    usage: Usage,
    model: Option<String>,
    service_tier: Option<String>,
}

impl Ingest for ChatIngest {
    fn event(&mut self, event: &sse::Event, out: &mut Vec<ModelEvent>) {
        let data = event.data.trim();
        if self.over || data.is_empty() {
            return;
        }
        if data == DONE {
            let open = self.finish.is_none() && !(self.heard && self.calls.are_whole());
            return if open { self.fail(failure::incomplete(), out) } else { self.complete(out) };
        }
        match model::json::parse_lenient_json(data) {
            Ok(chunk) => self.chunk(chunk, event.event.as_deref(), out),
            Err(error) => self.fail(failure::unreadable(data, &error), out),
        }
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        match (self.over, &self.finish) {
            (true, _) => {}
            (false, Some(_)) => self.complete(out),
            (false, None) => self.fail(failure::incomplete(), out),
        }
    }
}

impl ChatIngest {
    fn fail(&mut self, failure: ModelFailure, out: &mut Vec<ModelEvent>) {
        self.over = true;
        out.push(ModelEvent::Failed(failure));
    }

    fn chunk(&mut self, mut chunk: Value, name: Option<&str>, out: &mut Vec<ModelEvent>) {
        if let Some(failure) = refusal::in_stream(&chunk, name) {
            return self.fail(failure, out);
        }
        let tokens = usage::of_chunk(&chunk);
        let choices = match chunk.get_mut("choices") {
            Some(Value::Array(choices)) => std::mem::take(choices),
            _ if tokens.is_some() => Vec::new(),
            _ => return out.push(ModelEvent::Delta(ModelDelta::Unknown(chunk))),
        };
        keep(&mut self.model, json::text(&chunk, "model"));
        keep(&mut self.service_tier, json::text(&chunk, "service_tier"));
        for choice in choices {
            if let Err(failure) = self.choice(choice, out) {
                return self.fail(failure, out);
            }
        }
        self.used(tokens, out);
    }

    /// Tokens so far. What comes after the answer is said at the end.
    fn used(&mut self, tokens: Option<Usage>, out: &mut Vec<ModelEvent>) {
        let Some(tokens) = tokens.filter(|tokens| *tokens != self.usage) else { return };
        self.usage = tokens;
        if self.finish.is_none() {
            out.push(ModelEvent::Delta(ModelDelta::Usage(tokens)));
        }
    }

    fn choice(&mut self, mut choice: Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let is_first = choice.get("index").and_then(Value::as_u64).unwrap_or_default() == 0;
        if !choice.is_object() || !is_first {
            out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "choices": [choice] }))));
            return Ok(());
        }
        if let Some(failure) = refusal::in_stream(&choice, None) {
            return Err(failure);
        }
        self.heard = true;
        let delta = json::take(&mut choice, "delta").filter(|delta| delta.as_object().is_some_and(|of| !of.is_empty()));
        // A whole message says nothing new after its pieces.
        let delta = delta.or_else(|| json::take(&mut choice, "message").filter(|_| self.slots.0 == 0));
        if let Some(delta) = delta {
            self.delta(delta, logprobs(&mut choice), out);
        }
        self.used(choice.get("usage").and_then(usage::of), out);
        if let Some(reason) = json::text(&choice, "finish_reason").filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
            return broken(reason);
        }
        Ok(())
    }

    fn delta(&mut self, mut delta: Value, logprobs: Option<Value>, out: &mut Vec<ModelEvent>) {
        if let Some(thought) = Thought::of(&mut delta) {
            self.think(thought, out);
        }
        match json::take(&mut delta, "content") {
            Some(Value::String(text)) => self.say(text, logprobs, out),
            Some(Value::Array(parts)) => parts.into_iter().for_each(|part| self.part(part, out)),
            _ => {}
        }
        if let Some(text) = json::take_text(&mut delta, "refusal").filter(|text| !text.is_empty()) {
            let delta = self.message(out).refusal(text);
            out.push(ModelEvent::Delta(delta));
        }
        for image in taken_list(&mut delta, "images") {
            self.part(image, out);
        }
        for annotation in taken_list(&mut delta, "annotations") {
            let known = self.message.as_ref().and_then(|message| message.annotation(&annotation));
            let unknown = || ModelDelta::Unknown(json!({ "annotations": [annotation] }));
            out.push(ModelEvent::Delta(known.unwrap_or_else(unknown)));
        }
        let mut pieces = taken_list(&mut delta, "tool_calls");
        if let Some(function) = json::take(&mut delta, "function_call") {
            pieces.push(json!({ "function": function }));
        }
        if !pieces.is_empty() {
            self.close_thoughts(out);
            self.close_message(out);
            self.calls.pieces(pieces, &mut self.slots, out);
        }
        if let Some(audio) = json::take(&mut delta, "audio") {
            out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "audio": audio }))));
        }
    }

    fn think(&mut self, thought: Thought, out: &mut Vec<ModelEvent>) {
        let slots = &mut self.slots;
        let thoughts = self.thoughts.get_or_insert_with(|| {
            let slot = slots.next();
            out.push(ModelEvent::Delta(ModelDelta::Started { slot, item: ModelItemKind::Reasoning }));
            Thoughts::new(slot)
        });
        out.extend(thoughts.more(thought).map(ModelEvent::Delta));
    }

    fn say(&mut self, text: String, logprobs: Option<Value>, out: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            let delta = self.message(out).text(text, logprobs);
            out.push(ModelEvent::Delta(delta));
        }
    }

    /// One element of a content that is a list.
    fn part(&mut self, mut part: Value, out: &mut Vec<ModelEvent>) {
        match json::text(&part, "type").unwrap_or_default() {
            "text" => self.say(json::take_text(&mut part, "text").unwrap_or_default(), None, out),
            "thinking" => {
                if let Some(thought) = Thought::of_part(&part) {
                    self.think(thought, out);
                }
            }
            "image_url" => {
                let url = part.get_mut("image_url").and_then(|image| match image {
                    Value::String(url) => Some(std::mem::take(url)),
                    image => json::take_text(image, "url"),
                });
                if let Some(url) = url.filter(|url| !url.is_empty()) {
                    let delta = self.message(out).picture(url);
                    out.push(ModelEvent::Delta(delta));
                }
            }
            _ => out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "content": [part] })))),
        }
    }

    /// The message, begun when there is none.
    fn message(&mut self, out: &mut Vec<ModelEvent>) -> &mut Message {
        if self.message.is_none() {
            self.close_thoughts(out);
        }
        let slots = &mut self.slots;
        self.message.get_or_insert_with(|| Message::begin(slots, out))
    }

    fn close_thoughts(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.has_thought
            && let Some(thoughts) = self.thoughts.take()
        {
            self.has_thought = true;
            out.push(ModelEvent::Delta(thoughts.done(&self.origin)));
        }
    }

    fn close_message(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.has_spoken
            && let Some(message) = self.message.take()
        {
            self.has_spoken = true;
            out.push(ModelEvent::Delta(ModelDelta::Done { slot: message.slot, raw: None }));
        }
    }

    /// The turn ended by itself. At a limit nothing that is open is whole.
    fn complete(&mut self, out: &mut Vec<ModelEvent>) {
        let stop = match self.finish.as_deref().map(Finish::of) {
            Some(Finish::Stop(stop)) => stop,
            _ => StopReason::Stop,
        };
        let limited = matches!(stop, StopReason::MaxTokens | StopReason::ContentFilter);
        if let Some(failure) = self.calls.check().err().filter(|_| !limited) {
            return self.fail(failure, out);
        }
        if let Some(reason) = self.finish.as_deref().filter(|reason| Finish::of(reason) == Finish::Unknown) {
            out.push(ModelEvent::Delta(ModelDelta::Unknown(json!({ "finish_reason": reason }))));
        }
        let stop = match (limited, self.calls.is_empty()) {
            (true, _) => stop,
            (false, true) => StopReason::Stop,
            (false, false) => StopReason::ToolCalls,
        };
        self.calls.show(&mut self.slots, out);
        if !limited {
            let thoughts = self.thoughts.take().map(|thoughts| thoughts.done(&self.origin));
            let message = self.message.take().map(|message| ModelDelta::Done { slot: message.slot, raw: None });
            out.extend(thoughts.into_iter().chain(message).map(ModelEvent::Delta));
            self.calls.done(&self.origin, out);
        }
        self.over = true;
        let (model, service_tier) = (self.model.take(), self.service_tier.take());
        out.push(ModelEvent::End(ModelTurnEnd { stop_reason: stop, usage: self.usage, model, service_tier }));
    }
}

/// Some reasons are none: the service broke, and says so at the end.
fn broken(reason: &str) -> Result<(), ModelFailure> {
    let trouble = match Finish::of(reason) {
        Finish::Stop(_) | Finish::Unknown => return Ok(()),
        Finish::Broken => Trouble::Provider,
        Finish::Overloaded => Trouble::Overloaded,
        Finish::Aborted => Trouble::Incomplete,
    };
    let message = "The provider broke off its answer.";
    Err(trouble.failure(message, Some(json!({ "finish_reason": json::shown(reason) }))))
}

/// Keeps the last thing that was said.
fn keep(held: &mut Option<String>, said: Option<&str>) {
    if let Some(said) = said.filter(|said| !said.is_empty() && held.as_deref() != Some(*said)) {
        *held = Some(said.to_owned());
    }
}

/// A list, taken out rather than copied. One thing alone is a list, too.
fn taken_list(value: &mut Value, key: &str) -> Vec<Value> {
    match json::take(value, key) {
        Some(Value::Array(list)) => list,
        Some(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    }
}

/// The probabilities of a choice's words, as a list.
fn logprobs(choice: &mut Value) -> Option<Value> {
    let mut logprobs = json::take(choice, "logprobs")?;
    let content = json::take(&mut logprobs, "content");
    content.filter(|content| content.as_array().is_some_and(|content| !content.is_empty()))
}
