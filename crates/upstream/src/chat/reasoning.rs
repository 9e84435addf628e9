//! Reasoning: emitted as an item, and kept in the fields in which it came.
//!
//! OpenRouter sends reasoning twice, as text and as `reasoning_details`: signed or encrypted blocks in fragments, which have
//! to be sent back complete. A block's signature may come long after its text, even after the message has begun.

use crate::json;
use model::history::RawItem;
use model::json::JsonObject;
use model::model_turn::ModelDelta;
use serde_json::Value;
use std::collections::HashMap;

/// Fields of `reasoning_details` whose fragments are concatenated. Of all others the last value counts.
const FRAGMENTED_FIELDS: [&str; 3] = ["text", "summary", "data"];

#[derive(Clone, Debug)]
pub(super) struct ReasoningBuilder {
    slot: u32,
    text: Option<(ReasoningField, String)>,
    details: ReasoningDetails,
}

/// Where a service puts reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningField {
    /// DeepSeek, llama.cpp, Moonshot, older vLLM.
    ReasoningContent,
    /// OpenRouter, Ollama, Groq, vLLM.
    Reasoning,
    /// Parts of the content: Mistral.
    Thinking,
    /// Only in `reasoning_details`.
    Details,
}

impl ReasoningField {
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::ReasoningContent => Some("reasoning_content"),
            Self::Reasoning => Some("reasoning"),
            Self::Thinking | Self::Details => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ReasoningDelta {
    text: Option<(ReasoningField, String)>,
    details: Vec<Value>,
}

impl ReasoningDelta {
    /// Takes the reasoning out of a delta. If two fields have it, the first is emitted.
    pub(super) fn take_from(delta: &mut Value) -> Option<Self> {
        let mut text = |field: ReasoningField| {
            let text = json::take_string_field(delta, field.name()?).filter(|text| !text.is_empty())?;
            Some((field, text))
        };
        let field_text =
            [text(ReasoningField::ReasoningContent), text(ReasoningField::Reasoning)].into_iter().flatten().next();
        let details = match json::take_field(delta, "reasoning_details") {
            Some(Value::Array(details)) => details,
            _ => Vec::new(),
        };
        let text = field_text.or_else(|| {
            let text: String = details.iter().filter_map(detail_text).collect();
            (!text.is_empty()).then_some((ReasoningField::Details, text))
        });
        (text.is_some() || !details.is_empty()).then_some(Self { text, details })
    }

    pub(super) fn from_text(field: ReasoningField, text: String) -> Self {
        Self { text: Some((field, text)), details: Vec::new() }
    }

    /// Parses a `thinking` part of the content.
    pub(super) fn from_part(part: &Value) -> Option<Self> {
        let text: String = match part.get("thinking")? {
            Value::String(text) => text.clone(),
            parts => parts.as_array()?.iter().filter_map(|part| json::str_field(part, "text")).collect(),
        };
        (!text.is_empty()).then(|| Self::from_text(ReasoningField::Thinking, text))
    }
}

fn detail_text(detail: &Value) -> Option<&str> {
    json::str_field(detail, "text").or_else(|| json::str_field(detail, "summary"))
}

impl ReasoningBuilder {
    pub(super) fn new(slot: u32) -> Self {
        Self { slot, text: None, details: ReasoningDetails::default() }
    }

    pub(super) fn push(&mut self, delta: ReasoningDelta) -> Option<ModelDelta> {
        delta.details.into_iter().for_each(|detail| self.details.push(detail));
        let (field, text) = delta.text?;
        match &mut self.text {
            Some((_, so_far)) => so_far.push_str(&text),
            None => self.text = Some((field, text.clone())),
        }
        Some(ModelDelta::Reasoning { slot: self.slot, part: 0, text })
    }

    /// The raw item has the fields of the message that have to be sent back.
    pub(super) fn finish(self, origin: &str) -> ModelDelta {
        let mut item = JsonObject::new();
        if let Some((Some(name), text)) = self.text.map(|(field, text)| (field.name(), text)) {
            item.insert(name.to_owned(), text.into());
        }
        if !self.details.blocks.is_empty() {
            item.insert("reasoning_details".to_owned(), self.details.blocks.into());
        }
        let raw = RawItem { origin: origin.to_owned(), item: Value::Object(item) };
        let raw = raw.item.as_object().is_some_and(|item| !item.is_empty()).then_some(raw);
        ModelDelta::Done { slot: self.slot, raw }
    }
}

/// `reasoning_details` with the fragments of each block merged.
#[derive(Clone, Debug, Default)]
pub(super) struct ReasoningDetails {
    pub(super) blocks: Vec<Value>,
    /// Position of the block with this index and type.
    positions: HashMap<(u64, String), usize>,
}

impl ReasoningDetails {
    /// A fragment without an index is a complete block.
    pub(super) fn push(&mut self, fragment: Value) {
        let kind = json::str_field(&fragment, "type").unwrap_or_default().to_owned();
        let Some(index) = fragment.get("index").and_then(Value::as_u64) else {
            self.blocks.push(fragment);
            return;
        };
        let next = self.blocks.len();
        let position = *self.positions.entry((index, kind)).or_insert(next);
        match (self.blocks.get_mut(position), fragment) {
            (Some(Value::Object(block)), Value::Object(fragment)) => merge_fragment(block, fragment),
            (_, fragment) => self.blocks.push(fragment),
        }
    }
}

fn merge_fragment(block: &mut JsonObject, fragment: JsonObject) {
    for (name, value) in fragment {
        match (block.get_mut(&name), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if FRAGMENTED_FIELDS.contains(&name.as_str()) => {
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
    fn a_signed_block_is_complete_when_its_signature_comes_last() {
        let mut details = ReasoningDetails::default();
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
        assert_eq!(details.blocks, whole);
    }

    #[test]
    fn duplicate_reasoning_is_shown_once() {
        let mut delta = json!({"reasoning": "hm", "reasoning_content": "hm", "reasoning_details": [{"text": "hm"}]});
        let mut thoughts = ReasoningBuilder::new(3);
        let shown = thoughts.push(ReasoningDelta::take_from(&mut delta).unwrap()).unwrap();
        assert_eq!(shown, ModelDelta::Reasoning { slot: 3, part: 0, text: "hm".to_owned() });
        let ModelDelta::Done { raw: Some(raw), .. } = thoughts.finish("here") else { panic!("no raw") };
        assert_eq!(raw.item, json!({"reasoning_content": "hm", "reasoning_details": [{"text": "hm"}]}));
    }

    #[test]
    fn empty_reasoning_is_ignored() {
        for mut delta in [json!({"reasoning": ""}), json!({"reasoning_content": null}), json!({}), json!(null)] {
            assert!(ReasoningDelta::take_from(&mut delta).is_none(), "{delta}");
        }
    }
}
