//! The calls of a turn, assembled from deltas.
//!
//! A delta belongs to the call of its `index`; without one, to the call of its id, or to the last call. But some services
//! give all calls the same index, so a delta with a name begins a new call if it has a new id, or if the arguments so far
//! are complete. (Others send a new id, or repeat the name, in every delta: then the arguments are still incomplete, and it
//! is the same call.)
//!
//! A call starts when its name is complete: with the first delta of its arguments, with the next call, or at the end. No
//! call is `Done` before the end of the turn.

use super::slot_counter::SlotCounter;
use crate::json::{self, is_json_object};
use crate::provider_error::ProviderErrorKind;
use model::history::RawItem;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind};
use serde_json::{Value, json};
use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
pub(super) struct ChatToolCalls {
    calls: Vec<ToolCallBuilder>,
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
}

#[derive(Clone, Debug, Default)]
struct ToolCallBuilder {
    /// Set once the call has started.
    slot: Option<u32>,
    id: String,
    name: String,
    arguments: String,
    braces: BraceScanner,
    /// Gemini's signed reasoning, which it requires back with the call.
    extra_content: Option<Value>,
}

/// One element of `tool_calls`.
#[derive(Debug, Default)]
pub(super) struct ToolCallDelta {
    pub(super) index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) extra_content: Option<Value>,
}

impl ToolCallDelta {
    fn from_json(mut delta: Value) -> Self {
        let mut function = json::take_field(&mut delta, "function").unwrap_or_default();
        let arguments = match json::take_field(&mut function, "arguments") {
            Some(Value::String(text)) => text,
            Some(arguments) => arguments.to_string(),
            None => String::new(),
        };
        Self {
            index: delta.get("index").and_then(Value::as_u64),
            id: json::take_string_field(&mut delta, "id").unwrap_or_default(),
            name: json::take_string_field(&mut function, "name").unwrap_or_default(),
            arguments,
            extra_content: json::take_field(&mut delta, "extra_content"),
        }
    }

    fn is_empty(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && self.arguments.is_empty()
    }
}

impl ChatToolCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.iter().all(|call| call.name.is_empty())
    }

    pub(super) fn are_arguments_complete(&self) -> bool {
        self.calls.iter().all(|call| call.arguments.is_empty() || is_json_object(&call.arguments))
    }

    /// A call with arguments needs a name. A call without either is ignored.
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

    pub(super) fn push_deltas(&mut self, deltas: Vec<Value>, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        let has_several = deltas.len() > 1;
        for (position, delta) in (0_u64..).zip(deltas) {
            let mut delta = ToolCallDelta::from_json(delta);
            if has_several {
                delta.index = delta.index.or(Some(position));
            }
            self.push_one(delta, slots, out);
        }
    }

    pub(super) fn push_one(&mut self, delta: ToolCallDelta, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        if !delta.is_empty() || delta.extra_content.is_some() {
            self.push_delta(delta, slots, out);
        }
    }

    fn push_delta(&mut self, delta: ToolCallDelta, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        let known = self.position_of(&delta).filter(|position| !self.starts_new_call(*position, &delta));
        let position = known.unwrap_or(self.calls.len());
        if known.is_none() {
            // Calls start in order: the name of the previous one is complete now.
            if let Some(previous) = self.calls.last_mut() {
                previous.emit_started(slots, out);
            }
            self.calls.push(ToolCallBuilder::default());
        }
        if let Some(index) = delta.index {
            self.by_index.insert(index, position);
        }
        let Some(call) = self.calls.get_mut(position) else { return };
        if call.id.is_empty() && !delta.id.is_empty() {
            self.by_id.insert(delta.id.clone(), position);
            call.id.clone_from(&delta.id);
        }
        call.push_delta(delta, slots, out);
    }

    /// The call that a delta seems to belong to.
    fn position_of(&self, delta: &ToolCallDelta) -> Option<usize> {
        match delta.index {
            Some(index) => self.by_index.get(&index).copied(),
            None if !delta.id.is_empty() => self.by_id.get(&delta.id).copied(),
            None => self.calls.len().checked_sub(1),
        }
    }

    fn starts_new_call(&self, position: usize, delta: &ToolCallDelta) -> bool {
        let Some(call) = self.calls.get(position).filter(|call| !call.name.is_empty() && !delta.name.is_empty()) else {
            return false;
        };
        let is_open = !call.arguments.is_empty() && !call.braces.is_closed();
        let has_new_id = !call.id.is_empty() && !delta.id.is_empty() && call.id != delta.id;
        if has_new_id {
            return !(call.name == delta.name && is_open);
        }
        let has_same_id = !delta.id.is_empty() && call.id == delta.id;
        let is_repeat = call.name == delta.name && (delta.arguments.is_empty() || delta.arguments == call.arguments);
        !has_same_id && !is_repeat && call.braces.is_closed()
    }

    /// Starts the calls that have not started yet.
    pub(super) fn emit_all(&mut self, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        for call in &mut self.calls {
            call.emit_started(slots, out);
        }
    }

    /// Whether a call has started.
    pub(super) fn have_started(&self) -> bool {
        self.calls.iter().any(|call| call.slot.is_some())
    }

    /// Ends the calls that have started.
    pub(super) fn finish_all(&mut self, origin: &str) -> Vec<ModelDelta> {
        let done = |call: ToolCallBuilder| {
            let slot = call.slot?;
            let raw = Some(RawItem { origin: origin.to_owned(), item: call.into_json() });
            Some(ModelDelta::Done { slot, raw })
        };
        std::mem::take(&mut self.calls).into_iter().filter_map(done).collect()
    }
}

impl ToolCallBuilder {
    fn push_delta(&mut self, delta: ToolCallDelta, slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) {
        // Some services repeat the complete call at the end.
        let is_repeat = !delta.name.is_empty() && delta.arguments == self.arguments && is_json_object(&self.arguments);
        if self.slot.is_none() {
            self.merge_name(delta.name);
        }
        if delta.extra_content.is_some() {
            self.extra_content = delta.extra_content;
        }
        if is_repeat || delta.arguments.is_empty() {
            return;
        }
        self.arguments.push_str(&delta.arguments);
        self.braces.push(&delta.arguments);
        match self.slot {
            Some(slot) => out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text: delta.arguments })),
            None => self.emit_started(slots, out),
        }
    }

    /// A name comes once, repeatedly, or in fragments.
    fn merge_name(&mut self, name: String) {
        if name.starts_with(self.name.as_str()) {
            self.name = name;
        } else {
            self.name.push_str(&name);
        }
    }

    /// Emits `Started` and the arguments so far, if the call has a name.
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

    /// The call as in a response that was not streamed.
    fn into_json(self) -> Value {
        let function = json!({ "name": self.name, "arguments": self.arguments });
        let mut item = json!({ "id": self.id, "type": "function", "function": function });
        if let (Some(extra), Some(item)) = (self.extra_content, item.as_object_mut()) {
            item.insert("extra_content".to_owned(), extra);
        }
        item
    }
}

/// Tracks whether the arguments so far are a complete object. Runs for every delta, so it scans each byte once.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each call as `id name arguments`, as it was shown.
    fn call_lines(chunks: &[Value]) -> Vec<String> {
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
        assert_eq!(call_lines(&chunks), [r#"a one {"x":1}"#, "b two {}"]);
    }

    #[test]
    fn the_same_index_for_all_calls_does_not_mix_them() {
        let whole = [
            json!([piece(Some(0), "a", "one", "{\"x\":1}")]),
            json!([piece(Some(0), "b", "one", "{\"x\":2}")]),
            json!([piece(Some(0), "c", "two", "{}")]),
        ];
        assert_eq!(call_lines(&whole), [r#"a one {"x":1}"#, r#"b one {"x":2}"#, "c two {}"]);
        let pieces = [
            json!([piece(Some(0), "a", "one", "")]),
            json!([piece(Some(0), "", "", "{}")]),
            json!([piece(Some(0), "b", "two", "")]),
            json!([piece(Some(0), "", "", "{\"y\":2}")]),
        ];
        assert_eq!(call_lines(&pieces), ["a one {}", r#"b two {"y":2}"#]);
        let nameless =
            [json!([piece(Some(0), "", "one", "{\"x\":1}")]), json!([piece(Some(0), "", "one", "{\"x\":2}")])];
        assert_eq!(call_lines(&nameless), [r#" one {"x":1}"#, r#" one {"x":2}"#]);
    }

    #[test]
    fn a_missing_index_is_inferred_from_id_position_or_order() {
        let by_id = [
            json!([piece(None, "a", "one", "{")]),
            json!([piece(None, "b", "two", "{")]),
            json!([piece(None, "a", "", "}")]),
            json!([piece(None, "b", "", "}")]),
        ];
        assert_eq!(call_lines(&by_id), ["a one {}", "b two {}"]);
        let by_place = [
            json!([piece(None, "a", "one", ""), piece(None, "b", "two", "")]),
            json!([piece(None, "", "", "{\"x\":"), piece(None, "", "", "{")]),
            json!([piece(None, "", "", "1}"), piece(None, "", "", "}")]),
        ];
        assert_eq!(call_lines(&by_place), [r#"a one {"x":1}"#, "b two {}"]);
        let by_order = [
            json!([piece(None, "", "one", "{}")]),
            json!([piece(None, "", "two", "")]),
            json!([piece(None, "", "", "{\"x\":")]),
            json!([piece(None, "", "", "1}")]),
        ];
        assert_eq!(call_lines(&by_order), [" one {}", r#" two {"x":1}"#]);
    }

    #[test]
    fn repeated_or_changed_ids_leave_one_call() {
        let again = [
            json!([piece(Some(0), "a", "one", "")]),
            json!([piece(Some(0), "a", "", "{\"x\"")]),
            json!([piece(Some(0), "a", "", ":1}")]),
        ];
        assert_eq!(call_lines(&again), [r#"a one {"x":1}"#]);
        let changing = [
            json!([piece(Some(0), "a", "one", "{")]),
            json!([piece(Some(0), "b", "", "\"x\"")]),
            json!([piece(Some(0), "c", "one", ":1}")]),
        ];
        assert_eq!(call_lines(&changing), [r#"a one {"x":1}"#]);
        let braces = [
            json!([piece(Some(0), "a", "one", r#"{"x":"}\"}"#)]),
            json!([piece(Some(0), "b", "one", r#"","y":{}"#)]),
            json!([piece(Some(0), "c", "one", "}")]),
        ];
        assert_eq!(call_lines(&braces), [r#"a one {"x":"}\"}","y":{}}"#]);
    }

    #[test]
    fn names_may_be_repeated_split_or_late() {
        let again = [
            json!([piece(Some(0), "a", "read_file", "")]),
            json!([piece(Some(0), "", "read_file", "{\"p\":")]),
            json!([piece(Some(0), "", "read_file", "1}")]),
        ];
        assert_eq!(call_lines(&again), [r#"a read_file {"p":1}"#]);
        let split = [
            json!([piece(Some(0), "a", "read", "")]),
            json!([piece(Some(0), "", "_file", "")]),
            json!([piece(Some(0), "", "", "{}")]),
        ];
        assert_eq!(call_lines(&split), ["a read_file {}"]);
        let late = [
            json!([piece(None, "a", "", "{\"p\"")]),
            json!([piece(None, "a", "", ":1")]),
            json!([piece(None, "a", "read_file", "}")]),
        ];
        assert_eq!(call_lines(&late), [r#"a read_file {"p":1}"#]);
    }

    #[test]
    fn arguments_are_text_an_object_or_missing() {
        let object = [json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": {"x": 1}}}])];
        assert_eq!(call_lines(&object), [r#"a one {"x":1}"#]);
        let nothing = [
            json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": null}}]),
            json!([{"index": 1, "id": "b", "function": {"name": "two"}}]),
            json!([{"index": 0, "id": "", "function": {"name": "", "arguments": ""}}]),
        ];
        assert_eq!(call_lines(&nothing), ["a one ", "b two "]);
        let repeated =
            [json!([piece(Some(0), "a", "one", "{\"x\":1}")]), json!([piece(Some(0), "a", "one", "{\"x\":1}")])];
        assert_eq!(call_lines(&repeated), [r#"a one {"x":1}"#]);
    }

    #[test]
    fn a_call_without_a_name_fails_and_an_empty_one_is_ignored() {
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
