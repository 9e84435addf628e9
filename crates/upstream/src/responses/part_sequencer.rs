//! The parts of an item, one after the other.
//!
//! A part that has begun is shown until it is closed; what comes for others meanwhile is held, and shown when their turn
//! comes. So parts never mix, whatever the order of their events, and a stream in good order is never held up.

use model::content::Annotation;
use model::model_turn::{ModelDelta, ModelEvent};
use serde_json::Value;

/// What a part is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextPartKind {
    /// Words.
    Text,
    /// Words that decline.
    Refusal,
    /// What was thought, summed up.
    ReasoningSummary,
    /// What was thought.
    Reasoning,
}

/// One piece of a part.
#[derive(Clone, Debug)]
pub(super) enum PartDelta {
    Text(String, Option<Value>),
    Annotation(Annotation),
}

/// A part, as far as it has come.
#[derive(Clone, Debug)]
struct PendingPart {
    kind: TextPartKind,
    index: u32,
    /// Its number in what we say, once it has begun.
    output_part: Option<u32>,
    /// All of its text that came, shown or held.
    text: String,
    held: Vec<PartDelta>,
    /// How many annotations came.
    annotation_count: usize,
    is_closed: bool,
}

/// All parts of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct PartSequencer {
    list: Vec<PendingPart>,
    current: Option<usize>,
    emitted_parts: u32,
    /// The index that may begin next. Not heeded where `lax` says so.
    next_index: u32,
    /// Some services count on from the item before: then any index may begin.
    pub(super) accept_any_index: bool,
}

impl PartSequencer {
    /// The part with this index, made if it is new.
    pub(super) fn find_or_insert(&mut self, family: TextPartKind, index: u32) -> usize {
        let known = self.list.iter().position(|part| part.kind == family && part.index == index);
        known.unwrap_or_else(|| {
            let (text, held) = (String::new(), Vec::new());
            self.list.push(PendingPart {
                kind: family,
                index,
                output_part: None,
                text,
                held,
                annotation_count: 0,
                is_closed: false,
            });
            self.list.len() - 1
        })
    }

    /// The part that ends here. One that says the same under another index is it: some services count on too early.
    pub(super) fn find_ending(&mut self, family: TextPartKind, index: u32, whole: &str) -> usize {
        let known = self.list.iter().any(|part| part.kind == family && part.index == index);
        let same = |part: &&mut PendingPart| part.kind == family && !part.is_closed && part.text == whole;
        if let Some(part) = self.list.iter_mut().find(same).filter(|_| !known && !whole.is_empty()) {
            part.index = index;
        }
        self.find_or_insert(family, index)
    }

    /// The part that the finished item has at `index`. Where no such part came, but one whose index the finished item
    /// does not have, that is it: the service counted differently while it streamed.
    pub(super) fn match_final_part(&mut self, family: TextPartKind, index: u32, has: impl Fn(u32) -> bool) -> usize {
        let of_family = |part: &&PendingPart| part.kind == family;
        if self.list.iter().filter(of_family).any(|part| part.index == index) {
            return self.find_or_insert(family, index);
        }
        let stray = self.list.iter_mut().find(|part| part.kind == family && !has(part.index));
        if let Some(part) = stray {
            part.index = index;
        }
        self.find_or_insert(family, index)
    }

    /// Did anything of this family come?
    pub(super) fn has_text(&self, family: TextPartKind) -> bool {
        self.list.iter().any(|part| part.kind == family && !part.text.is_empty())
    }

    /// How many annotations a part has.
    pub(super) fn annotation_count(&self, at: usize) -> usize {
        self.list.get(at).map_or(0, |part| part.annotation_count)
    }

    /// An annotation came that nothing of ours is like.
    pub(super) fn skip_annotation(&mut self, at: usize) {
        if let Some(part) = self.list.get_mut(at) {
            part.annotation_count += 1;
        }
    }

    /// More of a part. What comes for a part that was closed is not believed.
    pub(super) fn push_delta(&mut self, slot: u32, at: usize, piece: PartDelta, out: &mut Vec<ModelEvent>) {
        if self.list.get(at).is_some_and(|part| !part.is_closed) {
            self.push_or_hold(slot, at, piece, out);
        }
    }

    /// A place in a part refers to something.
    pub(super) fn push_annotation(&mut self, slot: u32, at: usize, annotation: Annotation, out: &mut Vec<ModelEvent>) {
        self.push_or_hold(slot, at, PartDelta::Annotation(annotation), out);
    }

    /// All of a part's text: what is missing is shown. If it says something else than what came, that stays.
    pub(super) fn push_missing_text(
        &mut self,
        slot: u32,
        at: usize,
        whole: &str,
        logprobs: Option<Value>,
        out: &mut Vec<ModelEvent>,
    ) {
        let Some(part) = self.list.get(at) else { return };
        let untouched = part.text.is_empty();
        let missing = whole.strip_prefix(part.text.as_str()).filter(|missing| !missing.is_empty());
        if let Some(missing) = missing {
            // Probabilities are those of all the text: they fit only if all of it is missing.
            self.push_or_hold(slot, at, PartDelta::Text(missing.to_owned(), logprobs.filter(|_| untouched)), out);
        }
    }

    /// The part is whole; whoever waited for it is next.
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

    /// The item is whole, or nothing more comes of it: everything that is held is shown.
    pub(super) fn close_all(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        self.accept_any_index = true;
        for part in &mut self.list {
            part.is_closed = true;
        }
        self.current = None;
        self.emit_ready_parts(slot, out);
    }

    fn push_or_hold(&mut self, slot: u32, at: usize, piece: PartDelta, out: &mut Vec<ModelEvent>) {
        let latest = self.emitted_parts.checked_sub(1);
        let Some(part) = self.list.get_mut(at) else { return };
        match &piece {
            PartDelta::Text(text, _) => part.text.push_str(text),
            PartDelta::Annotation(_) => part.annotation_count += 1,
        }
        // A closed part can be added to until the next one begins.
        if part.output_part.is_some() && self.current != Some(at) && part.output_part != latest {
            return;
        }
        if let Some(place) = part.output_part {
            out.push(to_model_event(part.kind, slot, place, piece));
        } else {
            part.held.push(piece);
            self.emit_ready_parts(slot, out);
        }
    }

    /// Begins parts as long as nothing else is being shown.
    fn emit_ready_parts(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        while self.current.is_none() {
            let (lax, next) = (self.accept_any_index, self.next_index);
            let waits = |part: &PendingPart| {
                part.output_part.is_none() && part.held.iter().any(|p| matches!(p, PartDelta::Text(..)))
            };
            let ready = (0..).zip(&mut self.list).filter(|(_, part)| waits(part) && (lax || part.index <= next));
            let Some((at, part)) = ready.min_by_key(|(_, part)| (part.index, part.kind)) else { return };
            part.output_part = Some(self.emitted_parts);
            self.emitted_parts = self.emitted_parts.saturating_add(1);
            self.current = Some(at).filter(|_| !part.is_closed);
            emit_held(part, slot, out);
        }
    }
}

/// Shows what is held of a part: words first, since what refers to a place in them must not come before them.
fn emit_held(part: &mut PendingPart, slot: u32, out: &mut Vec<ModelEvent>) {
    let Some(place) = part.output_part else { return };
    let (words, notes): (Vec<PartDelta>, Vec<PartDelta>) =
        part.held.drain(..).partition(|piece| matches!(piece, PartDelta::Text(..)));
    out.extend(words.into_iter().chain(notes).map(|piece| to_model_event(part.kind, slot, place, piece)));
}

fn to_model_event(family: TextPartKind, slot: u32, part: u32, piece: PartDelta) -> ModelEvent {
    ModelEvent::Delta(match (piece, family) {
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

    fn shown(out: &[ModelEvent]) -> String {
        let piece = |event: &ModelEvent| match event {
            ModelEvent::Delta(ModelDelta::Text { part, text, .. } | ModelDelta::Refusal { part, text, .. }) => {
                format!("{part}:{text}")
            }
            other => format!("{other:?}"),
        };
        out.iter().map(piece).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn parts_that_interleave_are_shown_one_after_the_other() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let (a, b) = (parts.find_or_insert(TextPartKind::Text, 0), parts.find_or_insert(TextPartKind::Text, 1));
        for (at, text) in [(b, "x"), (a, "Hel"), (b, "y"), (a, "lo")] {
            parts.push_delta(0, at, words(text), &mut out);
        }
        assert_eq!(shown(&out), "0:Hel 0:lo");
        parts.close(0, a, &mut out);
        parts.push_delta(0, b, words("z"), &mut out);
        assert_eq!(shown(&out), "0:Hel 0:lo 1:x 1:y 1:z");
    }

    #[test]
    fn a_part_that_is_whole_before_the_first_waits_for_it() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let b = parts.find_or_insert(TextPartKind::Text, 1);
        parts.push_delta(0, b, words("b"), &mut out);
        parts.close(0, b, &mut out);
        let a = parts.find_or_insert(TextPartKind::Text, 0);
        parts.push_delta(0, a, words("a"), &mut out);
        parts.close(0, a, &mut out);
        assert_eq!(shown(&out), "0:a 1:b");
    }

    #[test]
    fn what_a_part_lacks_is_added_and_what_it_contradicts_stays() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let a = parts.find_or_insert(TextPartKind::Text, 0);
        parts.push_delta(0, a, words("Hel"), &mut out);
        parts.push_missing_text(0, a, "Hello", None, &mut out);
        parts.push_missing_text(0, a, "Goodbye", None, &mut out);
        parts.close(0, a, &mut out);
        parts.push_delta(0, a, words("!"), &mut out);
        assert_eq!(shown(&out), "0:Hel 0:lo");
    }

    #[test]
    fn a_service_that_counts_on_is_not_held_up_and_not_shown_twice() {
        let (mut parts, mut out) = (PartSequencer { accept_any_index: true, ..PartSequencer::default() }, Vec::new());
        let streamed = parts.find_or_insert(TextPartKind::Text, 1);
        parts.push_delta(0, streamed, words("Hello"), &mut out);
        assert_eq!(shown(&out), "0:Hello");
        let finished = parts.match_final_part(TextPartKind::Text, 0, |index| index == 0);
        parts.push_missing_text(0, finished, "Hello", None, &mut out);
        parts.close_all(0, &mut out);
        assert_eq!(shown(&out), "0:Hello");
    }

    #[test]
    fn text_and_a_refusal_at_one_index_are_two_parts() {
        let (mut parts, mut out) = (PartSequencer::default(), Vec::new());
        let (text, refusal) =
            (parts.find_or_insert(TextPartKind::Text, 0), parts.find_or_insert(TextPartKind::Refusal, 0));
        parts.push_delta(0, text, words("Well."), &mut out);
        parts.push_delta(0, refusal, words("No."), &mut out);
        parts.close_all(0, &mut out);
        assert_eq!(shown(&out), "0:Well. 1:No.");
    }
}
