//! The parts of an item, one after the other.
//!
//! A part that has begun is shown until it is closed; what comes for others meanwhile is held, and shown when their turn
//! comes. So parts never mix, whatever the order of their events, and a stream in good order is never held up.

use model::block::Annotation;
use model::model_turn::{ModelDelta, ModelEvent};
use serde_json::Value;

/// What a part is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Words.
    Text,
    /// Words that decline.
    Refusal,
    /// What was thought, summed up.
    Summary,
    /// What was thought.
    Thought,
}

/// One piece of a part.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(String, Option<Value>),
    Annotation(Annotation),
}

/// A part, as far as it has come.
#[derive(Clone, Debug)]
struct Part {
    family: Family,
    index: u32,
    /// Its number in what we say, once it has begun.
    place: Option<u32>,
    /// All of its text that came, shown or held.
    text: String,
    held: Vec<Piece>,
    /// How many annotations came.
    annotations: usize,
    closed: bool,
}

/// All parts of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    list: Vec<Part>,
    current: Option<usize>,
    begun: u32,
    /// The index that may begin next. Not heeded where `lax` says so.
    next: u32,
    /// Some services count on from the item before: then any index may begin.
    pub(super) lax: bool,
}

impl Parts {
    /// The part with this index, made if it is new.
    pub(super) fn at(&mut self, family: Family, index: u32) -> usize {
        let known = self.list.iter().position(|part| part.family == family && part.index == index);
        known.unwrap_or_else(|| {
            let (text, held) = (String::new(), Vec::new());
            self.list.push(Part { family, index, place: None, text, held, annotations: 0, closed: false });
            self.list.len() - 1
        })
    }

    /// The part that ends here. One that says the same under another index is it: some services count on too early.
    pub(super) fn ending(&mut self, family: Family, index: u32, whole: &str) -> usize {
        let known = self.list.iter().any(|part| part.family == family && part.index == index);
        let same = |part: &&mut Part| part.family == family && !part.closed && part.text == whole;
        if let Some(part) = self.list.iter_mut().find(same).filter(|_| !known && !whole.is_empty()) {
            part.index = index;
        }
        self.at(family, index)
    }

    /// The part that the finished item has at `index`. Where no such part came, but one whose index the finished item
    /// does not have, that is it: the service counted differently while it streamed.
    pub(super) fn matching(&mut self, family: Family, index: u32, has: impl Fn(u32) -> bool) -> usize {
        let of_family = |part: &&Part| part.family == family;
        if self.list.iter().filter(of_family).any(|part| part.index == index) {
            return self.at(family, index);
        }
        let stray = self.list.iter_mut().find(|part| part.family == family && !has(part.index));
        if let Some(part) = stray {
            part.index = index;
        }
        self.at(family, index)
    }

    /// Did anything of this family come?
    pub(super) fn any(&self, family: Family) -> bool {
        self.list.iter().any(|part| part.family == family && !part.text.is_empty())
    }

    /// How many annotations a part has.
    pub(super) fn annotations(&self, at: usize) -> usize {
        self.list.get(at).map_or(0, |part| part.annotations)
    }

    /// An annotation came that nothing of ours is like.
    pub(super) fn skip_annotation(&mut self, at: usize) {
        if let Some(part) = self.list.get_mut(at) {
            part.annotations += 1;
        }
    }

    /// More of a part. What comes for a part that was closed is not believed.
    pub(super) fn piece(&mut self, slot: u32, at: usize, piece: Piece, out: &mut Vec<ModelEvent>) {
        if self.list.get(at).is_some_and(|part| !part.closed) {
            self.push(slot, at, piece, out);
        }
    }

    /// A place in a part refers to something.
    pub(super) fn annotate(&mut self, slot: u32, at: usize, annotation: Annotation, out: &mut Vec<ModelEvent>) {
        self.push(slot, at, Piece::Annotation(annotation), out);
    }

    /// All of a part's text: what is missing is shown. If it says something else than what came, that stays.
    pub(super) fn complete(
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
            self.push(slot, at, Piece::Text(missing.to_owned(), logprobs.filter(|_| untouched)), out);
        }
    }

    /// The part is whole; whoever waited for it is next.
    pub(super) fn close(&mut self, slot: u32, at: usize, out: &mut Vec<ModelEvent>) {
        let Some(part) = self.list.get_mut(at) else { return };
        part.closed = true;
        while self.list.iter().any(|part| part.closed && part.index == self.next) {
            self.next = self.next.saturating_add(1);
        }
        if self.current == Some(at) {
            self.current = None;
        }
        self.advance(slot, out);
    }

    /// The item is whole, or nothing more comes of it: everything that is held is shown.
    pub(super) fn close_all(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        self.lax = true;
        for part in &mut self.list {
            part.closed = true;
        }
        self.current = None;
        self.advance(slot, out);
    }

    fn push(&mut self, slot: u32, at: usize, piece: Piece, out: &mut Vec<ModelEvent>) {
        let latest = self.begun.checked_sub(1);
        let Some(part) = self.list.get_mut(at) else { return };
        match &piece {
            Piece::Text(text, _) => part.text.push_str(text),
            Piece::Annotation(_) => part.annotations += 1,
        }
        // A closed part can be added to until the next one begins.
        if part.place.is_some() && self.current != Some(at) && part.place != latest {
            return;
        }
        if let Some(place) = part.place {
            out.push(delta(part.family, slot, place, piece));
        } else {
            part.held.push(piece);
            self.advance(slot, out);
        }
    }

    /// Begins parts as long as nothing else is being shown.
    fn advance(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        while self.current.is_none() {
            let (lax, next) = (self.lax, self.next);
            let waits = |part: &Part| part.place.is_none() && part.held.iter().any(|p| matches!(p, Piece::Text(..)));
            let ready = (0..).zip(&mut self.list).filter(|(_, part)| waits(part) && (lax || part.index <= next));
            let Some((at, part)) = ready.min_by_key(|(_, part)| (part.index, part.family)) else { return };
            part.place = Some(self.begun);
            self.begun = self.begun.saturating_add(1);
            self.current = Some(at).filter(|_| !part.closed);
            show(part, slot, out);
        }
    }
}

/// Shows what is held of a part: words first, since what refers to a place in them must not come before them.
fn show(part: &mut Part, slot: u32, out: &mut Vec<ModelEvent>) {
    let Some(place) = part.place else { return };
    let (words, notes): (Vec<Piece>, Vec<Piece>) =
        part.held.drain(..).partition(|piece| matches!(piece, Piece::Text(..)));
    out.extend(words.into_iter().chain(notes).map(|piece| delta(part.family, slot, place, piece)));
}

fn delta(family: Family, slot: u32, part: u32, piece: Piece) -> ModelEvent {
    ModelEvent::Delta(match (piece, family) {
        (Piece::Text(text, logprobs), Family::Text) => ModelDelta::Text { slot, part, text, logprobs },
        (Piece::Text(text, _), Family::Refusal) => ModelDelta::Refusal { slot, part, text },
        (Piece::Text(text, _), Family::Summary | Family::Thought) => ModelDelta::Reasoning { slot, part, text },
        (Piece::Annotation(annotation), _) => ModelDelta::Annotation { slot, part, annotation },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Piece {
        Piece::Text(text.to_owned(), None)
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
        let (mut parts, mut out) = (Parts::default(), Vec::new());
        let (a, b) = (parts.at(Family::Text, 0), parts.at(Family::Text, 1));
        for (at, text) in [(b, "x"), (a, "Hel"), (b, "y"), (a, "lo")] {
            parts.piece(0, at, words(text), &mut out);
        }
        assert_eq!(shown(&out), "0:Hel 0:lo");
        parts.close(0, a, &mut out);
        parts.piece(0, b, words("z"), &mut out);
        assert_eq!(shown(&out), "0:Hel 0:lo 1:x 1:y 1:z");
    }

    #[test]
    fn a_part_that_is_whole_before_the_first_waits_for_it() {
        let (mut parts, mut out) = (Parts::default(), Vec::new());
        let b = parts.at(Family::Text, 1);
        parts.piece(0, b, words("b"), &mut out);
        parts.close(0, b, &mut out);
        let a = parts.at(Family::Text, 0);
        parts.piece(0, a, words("a"), &mut out);
        parts.close(0, a, &mut out);
        assert_eq!(shown(&out), "0:a 1:b");
    }

    #[test]
    fn what_a_part_lacks_is_added_and_what_it_contradicts_stays() {
        let (mut parts, mut out) = (Parts::default(), Vec::new());
        let a = parts.at(Family::Text, 0);
        parts.piece(0, a, words("Hel"), &mut out);
        parts.complete(0, a, "Hello", None, &mut out);
        parts.complete(0, a, "Goodbye", None, &mut out);
        parts.close(0, a, &mut out);
        parts.piece(0, a, words("!"), &mut out);
        assert_eq!(shown(&out), "0:Hel 0:lo");
    }

    #[test]
    fn a_service_that_counts_on_is_not_held_up_and_not_shown_twice() {
        let (mut parts, mut out) = (Parts { lax: true, ..Parts::default() }, Vec::new());
        let streamed = parts.at(Family::Text, 1);
        parts.piece(0, streamed, words("Hello"), &mut out);
        assert_eq!(shown(&out), "0:Hello");
        let finished = parts.matching(Family::Text, 0, |index| index == 0);
        parts.complete(0, finished, "Hello", None, &mut out);
        parts.close_all(0, &mut out);
        assert_eq!(shown(&out), "0:Hello");
    }

    #[test]
    fn text_and_a_refusal_at_one_index_are_two_parts() {
        let (mut parts, mut out) = (Parts::default(), Vec::new());
        let (text, refusal) = (parts.at(Family::Text, 0), parts.at(Family::Refusal, 0));
        parts.piece(0, text, words("Well."), &mut out);
        parts.piece(0, refusal, words("No."), &mut out);
        parts.close_all(0, &mut out);
        assert_eq!(shown(&out), "0:Well. 1:No.");
    }
}
