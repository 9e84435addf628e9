//! What the model thought: shown as a reasoning item, kept as the fields that it came in.
//!
//! OpenRouter tells thoughts twice, as a text and as `reasoning_details`: signed or encrypted blocks in fragments, which
//! must go back whole. A block's signature may come long after its text, even after the answer has begun.

use crate::json;
use model::block::JsonObject;
use model::model_turn::ModelDelta;
use model::record::RawItem;
use serde_json::Value;
use std::collections::HashMap;

/// Fields of `reasoning_details` that come in pieces. All others come once, or the last one counts.
const IN_PIECES: [&str; 3] = ["text", "summary", "data"];

/// One reasoning item.
#[derive(Clone, Debug)]
pub(super) struct Thoughts {
    slot: u32,
    /// What was thought, by the name of the field that it came in.
    said: Option<(Field, String)>,
    details: Details,
}

/// Where a service puts what its model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// DeepSeek, llama.cpp, Moonshot, older vLLM.
    ReasoningContent,
    /// OpenRouter, Ollama, Groq, vLLM.
    Reasoning,
    /// Mistral: parts of the content.
    Thinking,
    /// Known from `reasoning_details` alone.
    Details,
}

impl Field {
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::ReasoningContent => Some("reasoning_content"),
            Self::Reasoning => Some("reasoning"),
            Self::Thinking | Self::Details => None,
        }
    }
}

/// What one chunk says of thoughts.
#[derive(Debug, Default)]
pub(super) struct Thought {
    said: Option<(Field, String)>,
    details: Vec<Value>,
}

impl Thought {
    /// Takes the thoughts off a delta. Where one thought is told in two fields, the first of them is shown.
    pub(super) fn of(delta: &mut Value) -> Option<Self> {
        let mut text = |field: Field| {
            let text = json::take_text(delta, field.name()?).filter(|text| !text.is_empty())?;
            Some((field, text))
        };
        let told = [text(Field::ReasoningContent), text(Field::Reasoning)].into_iter().flatten().next();
        let details = match json::take(delta, "reasoning_details") {
            Some(Value::Array(details)) => details,
            _ => Vec::new(),
        };
        let said = told.or_else(|| {
            let text: String = details.iter().filter_map(words).collect();
            (!text.is_empty()).then_some((Field::Details, text))
        });
        (said.is_some() || !details.is_empty()).then_some(Self { said, details })
    }

    /// What stands in a `thinking` part of the content.
    pub(super) fn of_part(part: &Value) -> Option<Self> {
        let text: String = match part.get("thinking")? {
            Value::String(text) => text.clone(),
            parts => parts.as_array()?.iter().filter_map(|part| json::text(part, "text")).collect(),
        };
        (!text.is_empty()).then_some(Self { said: Some((Field::Thinking, text)), details: Vec::new() })
    }
}

fn words(detail: &Value) -> Option<&str> {
    json::text(detail, "text").or_else(|| json::text(detail, "summary"))
}

impl Thoughts {
    /// Thoughts that have just begun.
    pub(super) fn new(slot: u32) -> Self {
        Self { slot, said: None, details: Details::default() }
    }

    /// More of them.
    pub(super) fn more(&mut self, thought: Thought) -> Option<ModelDelta> {
        thought.details.into_iter().for_each(|detail| self.details.push(detail));
        let (field, text) = thought.said?;
        match &mut self.said {
            Some((_, said)) => said.push_str(&text),
            None => self.said = Some((field, text.clone())),
        }
        Some(ModelDelta::Reasoning { slot: self.slot, part: 0, text })
    }

    /// They are whole. What has to go back is kept in the fields of the message that it came in.
    pub(super) fn done(self, origin: &str) -> ModelDelta {
        let mut item = JsonObject::new();
        if let Some((Some(name), said)) = self.said.map(|(field, said)| (field.name(), said)) {
            item.insert(name.to_owned(), said.into());
        }
        if !self.details.list.is_empty() {
            item.insert("reasoning_details".to_owned(), self.details.list.into());
        }
        let raw = RawItem { origin: origin.to_owned(), item: Value::Object(item) };
        let raw = raw.item.as_object().is_some_and(|item| !item.is_empty()).then_some(raw);
        ModelDelta::Done { slot: self.slot, raw }
    }
}

/// `reasoning_details` put together: one element for each block, whatever it was cut into.
#[derive(Clone, Debug, Default)]
pub(super) struct Details {
    pub(super) list: Vec<Value>,
    /// Where the block of this index and type is.
    places: HashMap<(u64, String), usize>,
}

impl Details {
    /// Takes in the next fragment. One without an index is a block by itself.
    pub(super) fn push(&mut self, fragment: Value) {
        let kind = json::text(&fragment, "type").unwrap_or_default().to_owned();
        let Some(index) = fragment.get("index").and_then(Value::as_u64) else {
            self.list.push(fragment);
            return;
        };
        let next = self.list.len();
        let place = *self.places.entry((index, kind)).or_insert(next);
        match (self.list.get_mut(place), fragment) {
            (Some(Value::Object(block)), Value::Object(fragment)) => join(block, fragment),
            (_, fragment) => self.list.push(fragment),
        }
    }
}

fn join(block: &mut JsonObject, fragment: JsonObject) {
    for (name, value) in fragment {
        match (block.get_mut(&name), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if IN_PIECES.contains(&name.as_str()) => {
                text.push_str(&more);
            }
            (_, value) => {
                block.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_signed_block_is_whole_again_though_its_signature_came_last() {
        let mut details = Details::default();
        for fragment in [
            json!({"type": "reasoning.text", "text": "Let", "signature": null, "format": "anthropic-claude-v1", "index": 0}),
            json!({"type": "reasoning.text", "text": " me", "format": "anthropic-claude-v1", "index": 0}),
            json!({"type": "reasoning.encrypted", "data": "AA", "id": "rs_1", "index": 0}),
            json!({"type": "reasoning.text", "signature": "sig", "index": 0}),
            json!({"type": "reasoning.summary", "summary": "one"}),
            json!({"type": "reasoning.summary", "summary": "two"}),
            json!("nonsense"),
        ] {
            details.push(fragment);
        }
        let whole = [
            json!({"type": "reasoning.text", "text": "Let me", "signature": "sig", "format": "anthropic-claude-v1",
                "index": 0}),
            json!({"type": "reasoning.encrypted", "data": "AA", "id": "rs_1", "index": 0}),
            json!({"type": "reasoning.summary", "summary": "one"}),
            json!({"type": "reasoning.summary", "summary": "two"}),
            json!("nonsense"),
        ];
        assert_eq!(details.list, whole);
    }

    #[test]
    fn a_thought_that_is_told_twice_is_shown_once() {
        let mut delta = json!({"reasoning": "hm", "reasoning_content": "hm", "reasoning_details": [{"text": "hm"}]});
        let mut thoughts = Thoughts::new(3);
        let shown = thoughts.more(Thought::of(&mut delta).unwrap()).unwrap();
        assert_eq!(shown, ModelDelta::Reasoning { slot: 3, part: 0, text: "hm".to_owned() });
        let ModelDelta::Done { raw: Some(raw), .. } = thoughts.done("here") else { panic!("no raw") };
        assert_eq!(raw.item, json!({"reasoning_content": "hm", "reasoning_details": [{"text": "hm"}]}));
    }

    #[test]
    fn nothing_is_no_thought() {
        for mut delta in [json!({"reasoning": ""}), json!({"reasoning_content": null}), json!({}), json!(null)] {
            assert!(Thought::of(&mut delta).is_none(), "{delta}");
        }
    }
}
