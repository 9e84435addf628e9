//! The arguments of a call, from the service's text to JSON: those of a custom call are free-form text and become
//! `{"input": …}`.

use super::event_kind::ArgumentsKind;
use model::model_turn::{ModelDelta, ModelEvent};

#[derive(Clone, Debug, Default)]
pub(super) struct ArgumentsBuffer {
    pub(super) received: String,
    /// How much of `received` was emitted.
    emitted_bytes: usize,
    /// The arguments in the item's announcement; used only if no others come.
    pub(super) announced_text: String,
    is_custom: bool,
    is_complete: bool,
    /// The JSON before a custom call's text was emitted.
    has_opening: bool,
    /// The JSON after it is due.
    is_closed: bool,
}

impl ArgumentsBuffer {
    pub(super) fn new(kind: ArgumentsKind) -> Self {
        Self { is_custom: kind == ArgumentsKind::Custom, ..Self::default() }
    }

    /// Returns `false` if the arguments are complete.
    pub(super) fn push(&mut self, delta: &str) -> bool {
        if !self.is_complete {
            self.received.push_str(delta);
        }
        !self.is_complete
    }

    pub(super) fn set_complete(&mut self, arguments: &str) {
        if arguments.is_empty() || self.is_complete {
            return;
        }
        self.is_complete = true;
        if self.emitted_bytes == 0 || arguments.starts_with(&self.received) {
            arguments.clone_into(&mut self.received);
        }
    }

    pub(super) fn close(&mut self) {
        if self.received.is_empty() {
            self.received = std::mem::take(&mut self.announced_text);
        }
        // Missing arguments are an empty object.
        if !self.is_custom && self.received.trim().is_empty() {
            self.received.push_str("{}");
        }
        self.is_complete = true;
        self.is_closed = true;
    }

    pub(super) fn emit_delta(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        let delta = self.received.get(self.emitted_bytes..).unwrap_or_default();
        let text = if self.is_custom { self.wrap_custom_input(delta) } else { delta.to_owned() };
        self.emitted_bytes = self.received.len();
        if self.is_custom {
            self.has_opening |= !text.is_empty();
        }
        if !text.is_empty() {
            out.push(ModelEvent::Delta(ModelDelta::Arguments { slot, text }));
        }
    }

    /// Wraps free-form text as the member `input` of a JSON object.
    fn wrap_custom_input(&self, delta: &str) -> String {
        let mut text = String::new();
        if !self.has_opening && (!delta.is_empty() || self.is_closed) {
            text.push_str(r#"{"input":""#);
        }
        let quoted = serde_json::to_string(delta).unwrap_or_default();
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
    use serde_json::{Value, json};

    #[test]
    fn arguments_in_any_pieces_are_one_json_text() {
        for cuts in [vec!["say \"hi\"\n", "ü"], vec!["", "say \"hi\"\nü"], vec!["say \"hi\"\nü"]] {
            let (mut arguments, mut out) = (ArgumentsBuffer::new(ArgumentsKind::Custom), Vec::new());
            for piece in cuts {
                assert!(arguments.push(piece));
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
