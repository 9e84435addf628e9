//! The provider's stream in, deltas out.
//!
//! An item is `Done` when the next block starts or the message ends: only then is it known that no limit cut it. What was
//! last said before a limit is left open, and whoever listens closes it as incomplete.

use super::block::{Block, Kind, NOWHERE, action, annotation, shown, state};
use super::item::{Item, Tokens};
use super::piece::{Piece, Quick};
use super::refusal;
use crate::{Ingest, failure, json};
use model::event::StopReason;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest, ModelTurnEnd};
use serde_json::Value;
use sse;

/// Reads one answer of the provider. `origin` is where its raw items may go back to.
#[must_use]
pub fn ingest(origin: String, _turn: &ModelRequest) -> Box<dyn Ingest> {
    Box::new(Reader { origin, ..Reader::default() })
}

#[derive(Debug, Default)]
struct Reader {
    origin: String,
    /// The blocks that have not ended, in the order in which they started.
    blocks: Vec<Block>,
    /// The items that are not done, in the order in which they started.
    items: Vec<Item>,
    slots: u32,
    tokens: Tokens,
    model: Option<String>,
    service_tier: Option<String>,
    stop: Option<StopReason>,
    /// The terminal event was emitted.
    over: bool,
}

impl Ingest for Reader {
    fn event(&mut self, event: &sse::Event, out: &mut Vec<ModelEvent>) {
        if self.over {
            return;
        }
        let quick = Quick::read(&event.data);
        if let Some((quick, piece)) = quick.as_ref().and_then(|quick| Some((quick, quick.piece()?)))
            && self.grow(Some(quick.index), piece, out)
        {
            return;
        }
        match model::json::parse_lenient_json(&event.data) {
            Ok(value) => self.read(event.event.as_deref(), value, out),
            Err(error) => self.fail(failure::unreadable(&event.data, &error), out),
        }
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        // A provider that has said why it stopped, and has ended every block, has said everything.
        if self.stop.is_some() && self.blocks.is_empty() {
            self.finish(out);
        } else {
            self.fail(failure::incomplete(), out);
        }
    }
}

impl Reader {
    fn read(&mut self, name: Option<&str>, event: Value, out: &mut Vec<ModelEvent>) {
        match json::text(&event, "type").or(name).unwrap_or_default() {
            "message_start" => self.message_started(&event, out),
            "content_block_start" => self.block_started(event, out),
            "content_block_delta" => self.block_grew(event, out),
            "content_block_stop" => self.block_ended(json::index(&event, "index"), out),
            "message_delta" => self.message_grew(event, out),
            "message_stop" => self.finish(out),
            "ping" => {}
            "error" => self.fail(refusal::in_stream(&event), out),
            _ => out.push(unknown(event)),
        }
    }

    fn message_started(&mut self, event: &Value, out: &mut Vec<ModelEvent>) {
        let Some(message) = event.get("message") else { return };
        self.model = json::text(message, "model").map(str::to_owned);
        self.count(message.get("usage"), out);
    }

    fn message_grew(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        self.count(event.get("usage"), out);
        let Some(delta) = event.get("delta") else { return };
        let Some(reason) = json::text(delta, "stop_reason") else { return };
        let (stop, is_plain) = match reason {
            "end_turn" | "stop_sequence" => (StopReason::Stop, true),
            "tool_use" => (StopReason::ToolCalls, true),
            "max_tokens" | "model_context_window_exceeded" => (StopReason::MaxTokens, true),
            "pause_turn" => (StopReason::MaxTokens, false),
            // Why it was filtered is told, where the provider says.
            "refusal" => (StopReason::ContentFilter, json::present(delta, "stop_details").is_none()),
            _ => (StopReason::Stop, false),
        };
        self.stop = Some(stop);
        if !is_plain {
            out.push(unknown(event));
        }
    }

    fn count(&mut self, usage: Option<&Value>, out: &mut Vec<ModelEvent>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        self.tokens.update(usage);
        if let Some(tier) = json::text(usage, "service_tier") {
            self.service_tier = Some(tier.to_owned());
        }
        out.push(ModelEvent::Delta(ModelDelta::Usage(self.tokens.usage())));
    }

    fn block_started(&mut self, mut event: Value, out: &mut Vec<ModelEvent>) {
        let index = json::index(&event, "index");
        match event.get("content_block").map_or(Kind::Unknown, Kind::of) {
            Kind::Unknown => {
                // Its pieces have to find it, and to be unknown, too.
                self.blocks.push(Block::new(index, NOWHERE, Kind::Unknown, Value::Null));
                out.push(unknown(event));
            }
            kind => {
                let head = json::take(&mut event, "content_block").unwrap_or_default();
                self.start(index, kind, head, out);
            }
        }
    }

    /// A block starts: what came before it is done, unless it goes on in this one.
    fn start(&mut self, index: Option<u32>, kind: Kind, head: Value, out: &mut Vec<ModelEvent>) {
        let joined = self.joined(kind, &head);
        self.settle(joined, out);
        let slot = joined.unwrap_or(self.slots);
        if joined.is_none() {
            self.slots = slot.saturating_add(1);
            self.items.push(Item::new(slot, kind, &head, out));
        }
        let Some(item) = self.items.iter_mut().find(|item| item.slot == slot) else { return };
        item.open = true;
        item.awaits = None;
        // What a block already says as it starts is its first piece.
        let said = match kind {
            Kind::Text => json::text(&head, "text"),
            Kind::Thinking => json::text(&head, "thinking"),
            _ => None,
        };
        let said = said.unwrap_or_default().to_owned();
        self.blocks.push(Block { begins: item.letters, ..Block::new(index, slot, kind, head) });
        let piece = if kind == Kind::Text { Piece::Text(&said) } else { Piece::Thinking(&said) };
        self.grow(index, piece, out);
    }

    /// The item that a block goes on with, if there is one.
    fn joined(&self, kind: Kind, head: &Value) -> Option<u32> {
        let item = match kind {
            Kind::Text => self.items.last().filter(|item| item.kind == Kind::Text && !item.open),
            Kind::HostedResult => {
                let call = json::text(head, "tool_use_id")?;
                self.items.iter().find(|item| item.awaits.as_deref() == Some(call))
            }
            _ => None,
        };
        item.map(|item| item.slot)
    }

    /// What has ended, and is not going on, is done.
    fn settle(&mut self, going_on: Option<u32>, out: &mut Vec<ModelEvent>) {
        let origin = &self.origin;
        self.items.retain_mut(|item| {
            let stays = item.open || item.awaits.is_some() || going_on == Some(item.slot);
            if !stays {
                item.done(origin, out);
            }
            stays
        });
    }

    fn block_grew(&mut self, event: Value, out: &mut Vec<ModelEvent>) {
        let index = json::index(&event, "index");
        let is_new = !self.blocks.iter().any(|block| block.index == index);
        let delta = event.get("delta").unwrap_or(&Value::Null);
        let is_known = match Piece::of(delta) {
            Some(piece) => {
                if let Some((kind, head)) = piece.block().filter(|_| is_new) {
                    self.start(index, kind, head, out);
                }
                self.grow(index, piece, out)
            }
            None => self.describe(index, delta),
        };
        if !is_known {
            out.push(unknown(event));
        }
    }

    /// More of a block. False when it has no place there.
    fn grow(&mut self, index: Option<u32>, piece: Piece<'_>, out: &mut Vec<ModelEvent>) -> bool {
        let Some(block) = self.blocks.iter_mut().rev().find(|block| block.index == index) else { return false };
        let slot = block.slot;
        match (block.kind, piece) {
            (Kind::Text, Piece::Text(text)) => {
                block.text.push_str(text);
                if let Some(item) = self.items.iter_mut().rev().find(|item| item.slot == slot) {
                    item.say(text, out);
                }
            }
            (Kind::Thinking, Piece::Thinking(text)) => {
                block.text.push_str(text);
                if !text.is_empty() {
                    let text = text.to_owned();
                    out.push(ModelEvent::Delta(ModelDelta::Reasoning { slot, part: 0, text }));
                }
            }
            (Kind::Call, Piece::Input(text)) => {
                block.text.push_str(text);
                if !text.is_empty() {
                    out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text: text.to_owned() }));
                }
            }
            (Kind::HostedCall, Piece::Input(text)) => block.text.push_str(text),
            _ => return false,
        }
        true
    }

    /// What belongs to a block beside its words. False for what we have no words for.
    fn describe(&mut self, index: Option<u32>, delta: &Value) -> bool {
        let Some(block) = self.blocks.iter_mut().rev().find(|block| block.index == index) else { return false };
        match (block.kind, json::text(delta, "type"), &mut block.head) {
            (Kind::Thinking, Some("signature_delta"), Value::Object(head)) => {
                let signature = json::text(delta, "signature").unwrap_or_default();
                head.insert("signature".to_owned(), signature.into());
                true
            }
            (Kind::Text, Some("citations_delta"), _) => {
                let Some(citation) = delta.get("citation") else { return false };
                block.citations.push(citation.clone());
                annotation(citation, 0, 0).is_some()
            }
            _ => false,
        }
    }

    fn block_ended(&mut self, index: Option<u32>, out: &mut Vec<ModelEvent>) {
        let Some(place) = self.blocks.iter().rposition(|block| block.index == index) else { return };
        let block = self.blocks.remove(place);
        let (slot, kind) = (block.slot, block.kind);
        let Some(item) = self.items.iter_mut().find(|item| item.slot == slot) else { return };
        item.open = false;
        // Citations of nothing refer to nothing.
        if kind == Kind::Text && item.told {
            let cited = block.citations.iter().filter_map(|cited| annotation(cited, block.begins, item.letters));
            out.extend(
                cited.map(|annotation| ModelDelta::Annotation { slot, part: 0, annotation }).map(ModelEvent::Delta),
            );
        }
        if kind == Kind::Call && block.text.trim().is_empty() {
            out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text: block.input_text() }));
        }
        let whole = block.whole();
        match kind {
            Kind::HostedCall => {
                item.awaits = json::text(&whole, "id").map(str::to_owned);
                item.action = action(&whole);
                out.push(item.moved("in_progress"));
            }
            Kind::HostedResult => {
                item.action.extend(shown(&whole).map(|result| ("result".to_owned(), result)));
                out.push(item.moved(state(&whole)));
            }
            _ => {}
        }
        item.blocks.push(whole);
    }

    /// The message is whole, or a limit has ended it.
    fn finish(&mut self, out: &mut Vec<ModelEvent>) {
        if self.over {
            return;
        }
        self.over = true;
        let stop = self.stop.unwrap_or(StopReason::Stop);
        if matches!(stop, StopReason::MaxTokens | StopReason::ContentFilter) {
            // The last thing that was said may be cut; what came before it is not.
            let last = self.items.last().map(|item| item.slot);
            self.settle(last, out);
        } else {
            while let Some(index) = self.blocks.first().map(|block| block.index) {
                self.block_ended(index, out);
            }
            for mut item in std::mem::take(&mut self.items) {
                item.done(&self.origin, out);
            }
        }
        let (usage, model, service_tier) = (self.tokens.usage(), self.model.take(), self.service_tier.take());
        out.push(ModelEvent::End(ModelTurnEnd { stop_reason: stop, usage, model, service_tier }));
    }

    fn fail(&mut self, failure: ModelFailure, out: &mut Vec<ModelEvent>) {
        if !self.over {
            self.over = true;
            out.push(ModelEvent::Failed(failure));
        }
    }
}

fn unknown(event: Value) -> ModelEvent {
    ModelEvent::Delta(ModelDelta::Unknown(event))
}
