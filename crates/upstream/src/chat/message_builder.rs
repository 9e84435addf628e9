//! The message of a turn: a sequence of text, refusal and image parts.

use super::slot_counter::SlotCounter;
use crate::json;
use model::content::Annotation;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use serde_json::Value;

#[derive(Clone, Debug)]
pub(super) struct ChatMessageBuilder {
    pub(super) slot: u32,
    part: u32,
    last_part_kind: Option<ChatPartKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatPartKind {
    Text,
    Refusal,
    Image,
}

impl ChatMessageBuilder {
    pub(super) fn start(slots: &mut SlotCounter, out: &mut Vec<ModelEvent>) -> Self {
        let slot = slots.next();
        out.push(ModelEvent::Delta(ModelDelta::Started { slot, item: ModelItemKind::Message { phase: None } }));
        Self { slot, part: 0, last_part_kind: None }
    }

    pub(super) fn text_delta(&mut self, text: String, logprobs: Option<Value>) -> ModelDelta {
        let part = self.part_index_for(ChatPartKind::Text);
        ModelDelta::Text { slot: self.slot, part, text, logprobs }
    }

    pub(super) fn refusal_delta(&mut self, text: String) -> ModelDelta {
        let part = self.part_index_for(ChatPartKind::Refusal);
        ModelDelta::Refusal { slot: self.slot, part, text }
    }

    pub(super) fn image_delta(&mut self, url: String) -> ModelDelta {
        let part = self.part_index_for(ChatPartKind::Image);
        ModelDelta::Image { slot: self.slot, part, partial: None, url }
    }

    /// `None` if the current part is not text, or the type of the annotation is unknown.
    pub(super) fn annotation_delta(&self, value: &Value) -> Option<ModelDelta> {
        let annotation =
            self.last_part_kind.filter(|kind| *kind == ChatPartKind::Text).and_then(|_| parse_url_citation(value))?;
        Some(ModelDelta::Annotation { slot: self.slot, part: self.part, annotation })
    }

    /// A new kind starts a new part, and so does every image.
    fn part_index_for(&mut self, kind: ChatPartKind) -> u32 {
        if self.last_part_kind.is_some_and(|before| before != kind || kind == ChatPartKind::Image) {
            self.part = self.part.saturating_add(1);
        }
        self.last_part_kind = Some(kind);
        self.part
    }
}

fn parse_url_citation(value: &Value) -> Option<Annotation> {
    let citation = value.get("url_citation").filter(|_| json::str_field(value, "type") == Some("url_citation"))?;
    Some(Annotation::UrlCitation {
        url: json::str_field(citation, "url")?.to_owned(),
        title: json::str_field(citation, "title").map(str::to_owned),
        start_index: json::offset_field(citation, "start_index")?,
        end_index: json::offset_field(citation, "end_index")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_of_one_kind_form_one_part_but_every_image_is_a_part() {
        let mut message = ChatMessageBuilder::start(&mut SlotCounter::default(), &mut Vec::new());
        let said = [
            message.text_delta("a".to_owned(), None),
            message.text_delta("b".to_owned(), None),
            message.image_delta("u".to_owned()),
            message.image_delta("v".to_owned()),
            message.refusal_delta("no".to_owned()),
        ];
        let parts = said.map(|delta| match delta {
            ModelDelta::Text { part, .. } | ModelDelta::Image { part, .. } | ModelDelta::Refusal { part, .. } => part,
            other => panic!("{other:?}"),
        });
        assert_eq!(parts, [0, 0, 1, 2, 3]);
    }
}
