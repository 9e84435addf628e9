//! Emits the parts of an item one after the other.
//!
//! While a part is open, deltas of other parts are held and emitted when their turn comes. So parts never interleave,
//! whatever the order of their events, and a stream in order is never delayed.

use model::content::Annotation;
use model::model_turn::{ModelDelta, ModelEvent};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextPartKind {
    Text,
    Refusal,
    ReasoningSummary,
    Reasoning,
}

#[derive(Clone, Debug)]
pub(super) enum PartDelta {
    /// With its log probabilities.
    Text(String, Option<Value>),
    Annotation(Annotation),
}

#[derive(Clone, Debug)]
struct PendingPart {
    kind: TextPartKind,
    index: u32,
    /// Its index in the output, once it was emitted.
    output_part: Option<u32>,
    /// All of its text, emitted or held.
    text: String,
    held: Vec<PartDelta>,
    annotation_count: usize,
    is_closed: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PartSequencer {
    list: Vec<PendingPart>,
    current: Option<usize>,
    emitted_parts: u32,
    /// The index that may begin next, unless any index may.
    next_index: u32,
    /// Some services continue indices from the previous item.
    pub(super) accept_any_index: bool,
}

impl PartSequencer {
    /// Returns the position of the part.
    pub(super) fn find_or_insert(&mut self, kind: TextPartKind, index: u32) -> usize {
        let known = self.list.iter().position(|part| part.kind == kind && part.index == index);
        known.unwrap_or_else(|| {
            self.list.push(PendingPart {
                kind,
                index,
                output_part: None,
                text: String::new(),
                held: Vec::new(),
                annotation_count: 0,
                is_closed: false,
            });
            self.list.len() - 1
        })
    }

    /// The part that ends. An open part with the same text under another index is it: some services increment too early.
    pub(super) fn find_ending(&mut self, kind: TextPartKind, index: u32, text: &str) -> usize {
        let is_known = self.list.iter().any(|part| part.kind == kind && part.index == index);
        let same = |part: &&mut PendingPart| part.kind == kind && !part.is_closed && part.text == text;
        if let Some(part) = self.list.iter_mut().find(same).filter(|_| !is_known && !text.is_empty()) {
            part.index = index;
        }
        self.find_or_insert(kind, index)
    }

    /// The part that the finished item has at `index`. If the stream had no such part, but one whose index the finished item
    /// lacks, that is it: the service counted differently while it streamed.
    pub(super) fn match_final_part(&mut self, kind: TextPartKind, index: u32, has: impl Fn(u32) -> bool) -> usize {
        let is_known = self.list.iter().any(|part| part.kind == kind && part.index == index);
        let renumbered = self.list.iter_mut().find(|part| !is_known && part.kind == kind && !has(part.index));
        if let Some(part) = renumbered {
            part.index = index;
        }
        self.find_or_insert(kind, index)
    }

    pub(super) fn has_text(&self, kind: TextPartKind) -> bool {
        self.list.iter().any(|part| part.kind == kind && !part.text.is_empty())
    }

    pub(super) fn annotation_count(&self, at: usize) -> usize {
        self.list.get(at).map_or(0, |part| part.annotation_count)
    }

    /// Counts an annotation of an unknown type.
    pub(super) fn skip_annotation(&mut self, at: usize) {
        if let Some(part) = self.list.get_mut(at) {
            part.annotation_count += 1;
        }
    }

    pub(super) fn is_closed(&self, at: usize) -> bool {
        self.list.get(at).is_some_and(|part| part.is_closed)
    }

    /// Deltas for a closed part are ignored.
    pub(super) fn push_delta(&mut self, slot: u32, at: usize, delta: PartDelta, out: &mut Vec<ModelEvent>) {
        if self.list.get(at).is_some_and(|part| !part.is_closed) {
            self.push_or_hold(slot, at, delta, out);
        }
    }

    pub(super) fn push_annotation(&mut self, slot: u32, at: usize, annotation: Annotation, out: &mut Vec<ModelEvent>) {
        self.push_or_hold(slot, at, PartDelta::Annotation(annotation), out);
    }

    /// Emits what a part lacks of its final text. Text that contradicts what was streamed is ignored.
    pub(super) fn push_missing_text(
        &mut self,
        slot: u32,
        at: usize,
        final_text: &str,
        logprobs: Option<Value>,
        out: &mut Vec<ModelEvent>,
    ) {
        let Some(part) = self.list.get(at) else { return };
        let is_untouched = part.text.is_empty();
        let missing = final_text.strip_prefix(part.text.as_str()).filter(|missing| !missing.is_empty());
        if let Some(missing) = missing {
            // The log probabilities cover the complete text.
            self.push_or_hold(slot, at, PartDelta::Text(missing.to_owned(), logprobs.filter(|_| is_untouched)), out);
        }
    }

    /// Ends a part and emits those that waited for it.
    pub(super) fn close(&mut self, slot: u32, at: usize, out: &mut Vec<ModelEvent>) {
        let Some(part) = self.list.get_mut(at) else { return };
        part.is_closed = true;
        while self.list.iter().any(|part| part.is_closed && part.index == self.next_index) {
            self.next_index = self.next_index.saturating_add(1);
        }
        if self.current == Some(at) {
            self.current = None;
        }
        self.emit_ready_parts(slot, out);
    }

    /// Ends all parts and emits everything that is held.
    pub(super) fn close_all(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        self.accept_any_index = true;
        for part in &mut self.list {
            part.is_closed = true;
        }
        self.current = None;
        self.emit_ready_parts(slot, out);
    }

    fn push_or_hold(&mut self, slot: u32, at: usize, delta: PartDelta, out: &mut Vec<ModelEvent>) {
        let latest = self.emitted_parts.checked_sub(1);
        let Some(part) = self.list.get_mut(at) else { return };
        match &delta {
            PartDelta::Text(text, _) => part.text.push_str(text),
            PartDelta::Annotation(_) => part.annotation_count += 1,
        }
        // A closed part can grow until the next one begins.
        if part.output_part.is_some() && self.current != Some(at) && part.output_part != latest {
            return;
        }
        if let Some(output_part) = part.output_part {
            out.push(to_model_event(part.kind, slot, output_part, delta));
        } else {
            part.held.push(delta);
            self.emit_ready_parts(slot, out);
        }
    }

    /// Begins parts as long as none is open.
    fn emit_ready_parts(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        while self.current.is_none() {
            let (accept_any, next) = (self.accept_any_index, self.next_index);
            let is_waiting = |part: &PendingPart| {
                part.output_part.is_none() && part.held.iter().any(|p| matches!(p, PartDelta::Text(..)))
            };
            let ready =
                (0..).zip(&mut self.list).filter(|(_, part)| is_waiting(part) && (accept_any || part.index <= next));
            let Some((at, part)) = ready.min_by_key(|(_, part)| (part.index, part.kind)) else { return };
            part.output_part = Some(self.emitted_parts);
            self.emitted_parts = self.emitted_parts.saturating_add(1);
            self.current = Some(at).filter(|_| !part.is_closed);
            emit_held(part, slot, out);
        }
    }
}

/// Text first, because annotations refer to offsets in it.
fn emit_held(part: &mut PendingPart, slot: u32, out: &mut Vec<ModelEvent>) {
    let Some(output_part) = part.output_part else { return };
    let (texts, annotations): (Vec<PartDelta>, Vec<PartDelta>) =
        part.held.drain(..).partition(|delta| matches!(delta, PartDelta::Text(..)));
    out.extend(texts.into_iter().chain(annotations).map(|delta| to_model_event(part.kind, slot, output_part, delta)));
}

fn to_model_event(kind: TextPartKind, slot: u32, part: u32, delta: PartDelta) -> ModelEvent {
    ModelEvent::Delta(match (delta, kind) {
        (PartDelta::Text(text, logprobs), TextPartKind::Text) => ModelDelta::Text { slot, part, text, logprobs },
        (PartDelta::Text(text, _), TextPartKind::Refusal) => ModelDelta::Refusal { slot, part, text },
        (PartDelta::Text(text, _), TextPartKind::ReasoningSummary | TextPartKind::Reasoning) => {
            ModelDelta::Reasoning { slot, part, text }
        }
        (PartDelta::Annotation(annotation), _) => ModelDelta::Annotation { slot, part, annotation },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> PartDelta {
        PartDelta::Text(text.to_owned(), None)
    }

    fn event_text(out: &[ModelEvent]) -> String {
        let piece = |event: &ModelEvent| match event {
            ModelEvent::Delta(ModelDelta::Text { part, text, .. } | ModelDelta::Refusal { part, text, .. }) => {
                format!("{part}:{text}")
            }
            other => format!("{other:?}"),
        };
        out.iter().map(piece).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn interleaved_parts_are_serialised() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let (a, b) = (parts.find_or_insert(TextPartKind::Text, 0), parts.find_or_insert(TextPartKind::Text, 1));
        for (at, text) in [(b, "x"), (a, "Hel"), (b, "y"), (a, "lo")] {
            parts.push_delta(0, at, words(text), &mut out);
        }
        assert_eq!(event_text(&out), "0:Hel 0:lo");
        parts.close(0, a, &mut out);
        parts.push_delta(0, b, words("z"), &mut out);
        assert_eq!(event_text(&out), "0:Hel 0:lo 1:x 1:y 1:z");
    }

    #[test]
    fn a_part_completed_before_the_first_waits_for_it() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let b = parts.find_or_insert(TextPartKind::Text, 1);
        parts.push_delta(0, b, words("b"), &mut out);
        parts.close(0, b, &mut out);
        let a = parts.find_or_insert(TextPartKind::Text, 0);
        parts.push_delta(0, a, words("a"), &mut out);
        parts.close(0, a, &mut out);
        assert_eq!(event_text(&out), "0:a 1:b");
    }

    #[test]
    fn missing_text_is_added_at_the_end_and_contradicting_text_stays() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let a = parts.find_or_insert(TextPartKind::Text, 0);
        parts.push_delta(0, a, words("Hel"), &mut out);
        parts.push_missing_text(0, a, "Hello", None, &mut out);
        parts.push_missing_text(0, a, "Goodbye", None, &mut out);
        parts.close(0, a, &mut out);
        parts.push_delta(0, a, words("!"), &mut out);
        assert_eq!(event_text(&out), "0:Hel 0:lo");
    }

    #[test]
    fn a_service_that_skips_indexes_is_not_delayed_or_duplicated() {
        let (mut parts, mut out) = (PartSequencer { accept_any_index: true, ..PartSequencer::default() }, Vec::new());
        let streamed = parts.find_or_insert(TextPartKind::Text, 1);
        parts.push_delta(0, streamed, words("Hello"), &mut out);
        assert_eq!(event_text(&out), "0:Hello");
        let finished = parts.match_final_part(TextPartKind::Text, 0, |index| index == 0);
        parts.push_missing_text(0, finished, "Hello", None, &mut out);
        parts.close_all(0, &mut out);
        assert_eq!(event_text(&out), "0:Hello");
    }

    #[test]
    fn text_and_a_refusal_at_one_index_are_two_parts() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let (text, refusal) =
            (parts.find_or_insert(TextPartKind::Text, 0), parts.find_or_insert(TextPartKind::Refusal, 0));
        parts.push_delta(0, text, words("Well."), &mut out);
        parts.push_delta(0, refusal, words("No."), &mut out);
        parts.close_all(0, &mut out);
        assert_eq!(event_text(&out), "0:Well. 1:No.");
    }
}
