//! The message of a turn: texts, refusals and pictures, one after the other.

use super::ingest::Slots;
use crate::json;
use model::block::Annotation;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use serde_json::Value;

/// The message that is being said.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) slot: u32,
    part: u32,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Picture,
}

impl Message {
    /// A message that has just begun.
    pub(super) fn begin(slots: &mut Slots, out: &mut Vec<ModelEvent>) -> Self {
        let slot = slots.next();
        out.push(ModelEvent::Delta(ModelDelta::Started { slot, item: ModelItemKind::Message { phase: None } }));
        Self { slot, part: 0, kind: None }
    }

    /// More words.
    pub(super) fn text(&mut self, text: String, logprobs: Option<Value>) -> ModelDelta {
        let part = self.part_of(Kind::Text);
        ModelDelta::Text { slot: self.slot, part, text, logprobs }
    }

    /// More words of a message that declines.
    pub(super) fn refusal(&mut self, text: String) -> ModelDelta {
        let part = self.part_of(Kind::Refusal);
        ModelDelta::Refusal { slot: self.slot, part, text }
    }

    /// A picture, whole.
    pub(super) fn picture(&mut self, url: String) -> ModelDelta {
        let part = self.part_of(Kind::Picture);
        ModelDelta::Image { slot: self.slot, part, partial: None, url }
    }

    /// A place in the text refers to something. `None` when there is no text, or when we do not know what it means.
    pub(super) fn annotation(&self, value: &Value) -> Option<ModelDelta> {
        let annotation = self.kind.filter(|kind| *kind == Kind::Text).and_then(|_| url_citation(value))?;
        Some(ModelDelta::Annotation { slot: self.slot, part: self.part, annotation })
    }

    /// What is of another kind than the part before it is a part of its own, and so is every picture.
    fn part_of(&mut self, kind: Kind) -> u32 {
        if self.kind.is_some_and(|before| before != kind || kind == Kind::Picture) {
            self.part = self.part.saturating_add(1);
        }
        self.kind = Some(kind);
        self.part
    }
}

fn url_citation(value: &Value) -> Option<Annotation> {
    let citation = value.get("url_citation").filter(|_| json::text(value, "type") == Some("url_citation"))?;
    Some(Annotation::UrlCitation {
        url: json::text(citation, "url")?.to_owned(),
        title: json::text(citation, "title").map(str::to_owned),
        start_index: json::index(citation, "start_index").unwrap_or_default(),
        end_index: json::index(citation, "end_index").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_one_kind_is_one_part_but_every_picture_is_its_own() {
        let mut message = Message::begin(&mut Slots::default(), &mut Vec::new());
        let said = [
            message.text("a".to_owned(), None),
            message.text("b".to_owned(), None),
            message.picture("u".to_owned()),
            message.picture("v".to_owned()),
            message.refusal("no".to_owned()),
        ];
        let parts = said.map(|delta| match delta {
            ModelDelta::Text { part, .. } | ModelDelta::Image { part, .. } | ModelDelta::Refusal { part, .. } => part,
            other => panic!("{other:?}"),
        });
        assert_eq!(parts, [0, 0, 1, 2, 3]);
    }
}
