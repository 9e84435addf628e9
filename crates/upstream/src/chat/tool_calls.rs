//! The calls of a turn, put together from their pieces.
//!
//! A piece belongs to the call of its `index`; without one, to the call of its id, or to the last one. But several
//! services number all calls alike, so a piece that says a name begins a new call when it comes with a new id, or when the
//! arguments so far are whole. (Others give every piece a new id, or repeat the name in each: then the arguments are
//! still open, and it is the same call.)
//!
//! A call is shown when its name is known to be whole: with the first piece of its arguments, with the next call, or at
//! the end. Nothing here is `Done` before the turn is.

use super::ingest::SlotCounter;
use crate::failure::ProviderErrorKind;
use crate::json;
use model::history::RawItem;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The calls so far.
#[derive(Clone, Debug, Default)]
pub(super) struct ChatToolCalls {
    calls: Vec<ToolCallBuilder>,
    /// The last call with this index.
    by_index: HashMap<u64, usize>,
    /// The last call with this id.
    by_id: HashMap<String, usize>,
}

#[derive(Clone, Debug, Default)]
struct ToolCallBuilder {
    /// What it is shown as, once it is.
    slot: Option<u32>,
    id: String,
    name: String,
    arguments: String,
    braces: BraceScanner,
    /// What Gemini wants back with a call: its signed thoughts.
    extra_content: Option<Value>,
}

/// One element of `tool_calls`.
#[derive(Debug, Default)]
struct ToolCallDelta {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    extra_content: Option<Value>,
}

impl ToolCallDelta {
    fn from_json(mut piece: Value) -> Self {
        let mut function = json::take_field(&mut piece, "function").unwrap_or_default();
        let arguments = match json::take_field(&mut function, "arguments") {
            Some(Value::String(text)) => text,
            Some(whole) => whole.to_string(),
            None => String::new(),
        };
        Self {
            index: piece.get("index").and_then(Value::as_u64),
            id: json::take_string_field(&mut piece, "id").unwrap_or_default(),
            name: json::take_string_field(&mut function, "name").unwrap_or_default(),
            arguments,
            extra_content: json::take_field(&mut piece, "extra_content"),
        }
    }

    fn is_empty(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && self.arguments.is_empty()
    }
}

impl ChatToolCalls {
    /// Is there any?
    pub(super) fn is_empty(&self) -> bool {
        self.calls.iter().all(|call| call.name.is_empty())
    }

    /// Are all arguments whole?
    pub(super) fn are_arguments_complete(&self) -> bool {
        self.calls.iter().all(|call| call.arguments.is_empty() || is_json_object(&call.arguments))
    }

    /// A call without a name cannot be made. One that has nothing at all is a slip of the service.
    pub(super) fn check_names(&self) -> Result<(), ModelFailure> {
        match self.calls.iter().find(|call| call.name.is_empty() && !call.arguments.is_empty()) {
            Some(call) => {
                let details = Some(
                    json!({ "id": json::sanitize_for_error(&call.id), "arguments": json::sanitize_for_error(&call.arguments) }),
                );
                Err(ProviderErrorKind::Protocol.to_failure("The provider sent a tool call without a name.", details))
            }
            None => Ok(()),
        }
    }

    /// Takes in the pieces of one chunk.
    pub(super) fn push_deltas(&mut self, pieces: Vec<Value>, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        let several = pieces.len() > 1;
        for (place, piece) in (0_u64..).zip(pieces) {
            let mut piece = ToolCallDelta::from_json(piece);
            if several {
                piece.index = piece.index.or(Some(place));
            }
            if !piece.is_empty() || piece.extra_content.is_some() {
                self.push_delta(piece, slots, out);
            }
        }
    }

    fn push_delta(&mut self, piece: ToolCallDelta, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        let known = self.position_of(&piece).filter(|place| !self.starts_new_call(*place, &piece));
        let place = known.unwrap_or(self.calls.len());
        if known.is_none() {
            // Calls are shown in their order: the one before has its whole name.
            if let Some(before) = self.calls.last_mut() {
                before.emit_started(slots, out);
            }
            self.calls.push(ToolCallBuilder::default());
        }
        if let Some(index) = piece.index {
            self.by_index.insert(index, place);
        }
        let Some(call) = self.calls.get_mut(place) else { return };
        if call.id.is_empty() && !piece.id.is_empty() {
            self.by_id.insert(piece.id.clone(), place);
            call.id.clone_from(&piece.id);
        }
        call.push_delta(piece, slots, out);
    }

    /// The call that a piece seems to belong to.
    fn position_of(&self, piece: &ToolCallDelta) -> Option<usize> {
        match piece.index {
            Some(index) => self.by_index.get(&index).copied(),
            None if !piece.id.is_empty() => self.by_id.get(&piece.id).copied(),
            None => self.calls.len().checked_sub(1),
        }
    }

    fn starts_new_call(&self, place: usize, piece: &ToolCallDelta) -> bool {
        let Some(call) = self.calls.get(place).filter(|call| !call.name.is_empty() && !piece.name.is_empty()) else {
            return false;
        };
        let is_open = !call.arguments.is_empty() && !call.braces.is_closed();
        let new_id = !call.id.is_empty() && !piece.id.is_empty() && call.id != piece.id;
        if new_id {
            return !(call.name == piece.name && is_open);
        }
        let same_id = !piece.id.is_empty() && call.id == piece.id;
        let repeats = call.name == piece.name && (piece.arguments.is_empty() || piece.arguments == call.arguments);
        !same_id && !repeats && call.braces.is_closed()
    }

    /// The turn ended: what was not shown yet is.
    pub(super) fn emit_all(&mut self, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        for call in &mut self.calls {
            call.emit_started(slots, out);
        }
    }

    /// Every call is whole.
    pub(super) fn finish_all(&mut self, origin: &str, out: &mut Vec<ModelEvent>) {
        for call in std::mem::take(&mut self.calls) {
            if let Some(slot) = call.slot {
                let raw = Some(RawItem { origin: origin.to_owned(), item: call.into_json() });
                out.push(ModelEvent::Delta(ModelDelta::Done { slot, raw }));
            }
        }
    }
}

impl ToolCallBuilder {
    fn push_delta(&mut self, piece: ToolCallDelta, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        // Some services say at the end all that they said before.
        let repeats = !piece.name.is_empty() && piece.arguments == self.arguments && is_json_object(&self.arguments);
        if self.slot.is_none() {
            self.merge_name(piece.name);
        }
        if piece.extra_content.is_some() {
            self.extra_content = piece.extra_content;
        }
        if repeats || piece.arguments.is_empty() {
            return;
        }
        self.arguments.push_str(&piece.arguments);
        self.braces.push(&piece.arguments);
        match self.slot {
            Some(slot) => out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text: piece.arguments })),
            None => self.emit_started(slots, out),
        }
    }

    /// A name comes once, or again and again, or piece by piece.
    fn merge_name(&mut self, name: String) {
        if name.starts_with(self.name.as_str()) {
            self.name = name;
        } else {
            self.name.push_str(&name);
        }
    }

    /// Shows the call with what there is of its arguments, if it has a name.
    fn emit_started(&mut self, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        if self.slot.is_some() || self.name.is_empty() {
            return;
        }
        let slot = slots.next();
        self.slot = Some(slot);
        let provider_call_id = Some(self.id.clone()).filter(|id| !id.is_empty());
        let item = ModelItemKind::ToolCall { name: self.name.clone(), provider_call_id };
        out.push(ModelEvent::Delta(ModelDelta::Started { slot, item }));
        if !self.arguments.is_empty() {
            out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text: self.arguments.clone() }));
        }
    }

    /// The call as a whole answer would have it.
    fn into_json(self) -> Value {
        let function = json!({ "name": self.name, "arguments": self.arguments });
        let mut item = json!({ "id": self.id, "type": "function", "function": function });
        if let (Some(extra), Some(item)) = (self.extra_content, item.as_object_mut()) {
            item.insert("extra_content".to_owned(), extra);
        }
        item
    }
}

/// Whether the arguments so far look like a whole object. It is asked for every piece, so each byte is looked at once.
#[derive(Clone, Debug, Default)]
struct BraceScanner {
    has_opened: bool,
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl BraceScanner {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            if std::mem::take(&mut self.escaped) {
                continue;
            }
            match byte {
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                b'{' if !self.in_string => {
                    self.has_opened = true;
                    self.depth = self.depth.saturating_add(1);
                }
                b'}' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    const fn is_closed(&self) -> bool {
        self.has_opened && self.depth == 0 && !self.in_string
    }
}

/// Is this text one whole JSON object?
pub(super) fn is_json_object(arguments: &str) -> bool {
    arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each call as `id name arguments`, as it was shown.
    fn told(chunks: &[Value]) -> Vec<String> {
        let (mut calls, mut slots, mut out) = (ChatToolCalls::default(), SlotCounter::default(), Vec::new());
        for chunk in chunks {
            calls.push_deltas(chunk.as_array().unwrap().clone(), &mut slots, &mut out);
        }
        calls.emit_all(&mut slots, &mut out);
        let mut told: Vec<String> = Vec::new();
        for event in out {
            match event {
                ModelEvent::Delta(ModelDelta::Started {
                    slot,
                    item: ModelItemKind::ToolCall { name, provider_call_id },
                }) => {
                    assert_eq!(slot as usize, told.len());
                    told.push(format!("{} {name} ", provider_call_id.unwrap_or_default()));
                }
                ModelEvent::Delta(ModelDelta::Arguments { slot, text }) => told[slot as usize].push_str(&text),
                other => panic!("{other:?}"),
            }
        }
        told
    }

    fn piece(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Value {
        let mut piece = json!({"function": {}});
        if let Some(index) = index {
            piece["index"] = index.into();
        }
        if !id.is_empty() {
            piece["id"] = id.into();
        }
        if !name.is_empty() {
            piece["function"]["name"] = name.into();
        }
        piece["function"]["arguments"] = arguments.into();
        piece
    }

    #[test]
    fn parallel_calls_interleave_by_index() {
        let chunks = [
            json!([piece(Some(0), "a", "one", "")]),
            json!([piece(Some(1), "b", "two", "")]),
            json!([piece(Some(0), "", "", "{\"x\":")]),
            json!([piece(Some(1), "", "", "{}"), piece(Some(0), "", "", "1}")]),
        ];
        assert_eq!(told(&chunks), [r#"a one {"x":1}"#, "b two {}"]);
    }

    #[test]
    fn the_same_index_for_all_calls_does_not_mix_them() {
        let whole = [
            json!([piece(Some(0), "a", "one", "{\"x\":1}")]),
            json!([piece(Some(0), "b", "one", "{\"x\":2}")]),
            json!([piece(Some(0), "c", "two", "{}")]),
        ];
        assert_eq!(told(&whole), [r#"a one {"x":1}"#, r#"b one {"x":2}"#, "c two {}"]);
        let pieces = [
            json!([piece(Some(0), "a", "one", "")]),
            json!([piece(Some(0), "", "", "{}")]),
            json!([piece(Some(0), "b", "two", "")]),
            json!([piece(Some(0), "", "", "{\"y\":2}")]),
        ];
        assert_eq!(told(&pieces), ["a one {}", r#"b two {"y":2}"#]);
        let nameless =
            [json!([piece(Some(0), "", "one", "{\"x\":1}")]), json!([piece(Some(0), "", "one", "{\"x\":2}")])];
        assert_eq!(told(&nameless), [r#" one {"x":1}"#, r#" one {"x":2}"#]);
    }

    #[test]
    fn a_missing_index_is_found_by_id_or_place_or_order() {
        let by_id = [
            json!([piece(None, "a", "one", "{")]),
            json!([piece(None, "b", "two", "{")]),
            json!([piece(None, "a", "", "}")]),
            json!([piece(None, "b", "", "}")]),
        ];
        assert_eq!(told(&by_id), ["a one {}", "b two {}"]);
        let by_place = [
            json!([piece(None, "a", "one", ""), piece(None, "b", "two", "")]),
            json!([piece(None, "", "", "{\"x\":"), piece(None, "", "", "{")]),
            json!([piece(None, "", "", "1}"), piece(None, "", "", "}")]),
        ];
        assert_eq!(told(&by_place), [r#"a one {"x":1}"#, "b two {}"]);
        let by_order = [
            json!([piece(None, "", "one", "{}")]),
            json!([piece(None, "", "two", "")]),
            json!([piece(None, "", "", "{\"x\":")]),
            json!([piece(None, "", "", "1}")]),
        ];
        assert_eq!(told(&by_order), [" one {}", r#" two {"x":1}"#]);
    }

    #[test]
    fn ids_that_come_again_or_change_leave_one_call() {
        let again = [
            json!([piece(Some(0), "a", "one", "")]),
            json!([piece(Some(0), "a", "", "{\"x\"")]),
            json!([piece(Some(0), "a", "", ":1}")]),
        ];
        assert_eq!(told(&again), [r#"a one {"x":1}"#]);
        let changing = [
            json!([piece(Some(0), "a", "one", "{")]),
            json!([piece(Some(0), "b", "", "\"x\"")]),
            json!([piece(Some(0), "c", "one", ":1}")]),
        ];
        assert_eq!(told(&changing), [r#"a one {"x":1}"#]);
        let braces = [
            json!([piece(Some(0), "a", "one", r#"{"x":"}\"}"#)]),
            json!([piece(Some(0), "b", "one", r#"","y":{}"#)]),
            json!([piece(Some(0), "c", "one", "}")]),
        ];
        assert_eq!(told(&braces), [r#"a one {"x":"}\"}","y":{}}"#]);
    }

    #[test]
    fn names_come_again_or_in_pieces_or_late() {
        let again = [
            json!([piece(Some(0), "a", "read_file", "")]),
            json!([piece(Some(0), "", "read_file", "{\"p\":")]),
            json!([piece(Some(0), "", "read_file", "1}")]),
        ];
        assert_eq!(told(&again), [r#"a read_file {"p":1}"#]);
        let split = [
            json!([piece(Some(0), "a", "read", "")]),
            json!([piece(Some(0), "", "_file", "")]),
            json!([piece(Some(0), "", "", "{}")]),
        ];
        assert_eq!(told(&split), ["a read_file {}"]);
        let late = [
            json!([piece(None, "a", "", "{\"p\"")]),
            json!([piece(None, "a", "", ":1")]),
            json!([piece(None, "a", "read_file", "}")]),
        ];
        assert_eq!(told(&late), [r#"a read_file {"p":1}"#]);
    }

    #[test]
    fn arguments_are_a_text_or_an_object_or_nothing() {
        let object = [json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": {"x": 1}}}])];
        assert_eq!(told(&object), [r#"a one {"x":1}"#]);
        let nothing = [
            json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": null}}]),
            json!([{"index": 1, "id": "b", "function": {"name": "two"}}]),
            json!([{"index": 0, "id": "", "function": {"name": "", "arguments": ""}}]),
        ];
        assert_eq!(told(&nothing), ["a one ", "b two "]);
        let repeated =
            [json!([piece(Some(0), "a", "one", "{\"x\":1}")]), json!([piece(Some(0), "a", "one", "{\"x\":1}")])];
        assert_eq!(told(&repeated), [r#"a one {"x":1}"#]);
    }

    #[test]
    fn a_call_without_a_name_is_a_failure_but_one_without_anything_is_none() {
        let (mut slots, mut out) = (SlotCounter::default(), Vec::new());
        let mut calls = ChatToolCalls::default();
        calls.push_deltas(
            vec![json!({"index": 0, "id": "a", "function": {"arguments": ""}}), json!(7)],
            &mut slots,
            &mut out,
        );
        assert!(calls.check_names().is_ok() && calls.is_empty() && out.is_empty());
        calls.push_deltas(vec![piece(Some(0), "", "", "{}")], &mut slots, &mut out);
        assert_eq!(calls.check_names().unwrap_err().error.code, "provider_protocol_error");
    }
}
