//! Which item an event means.
//!
//! Events name their item twice, by `item_id` and by `output_index`, and services get either wrong: ids that change from
//! event to event, ids that all items share, one index for two items. The id decides where it is known and one item's
//! alone; else the index does. Two items are never taken for one: a new item has a slot of its own, whatever its index.

use super::item_builder::{ItemProgress, ResponsesItemBuilder, ResponsesItemKind};
use crate::json::{str_field, u32_field};
use serde_json::Value;

/// All items of an answer, in the order in which they were first heard of. An item's slot is its place.
#[derive(Debug, Default)]
pub(super) struct ResponsesItemIndex {
    pub(super) items: Vec<ResponsesItemBuilder>,
    /// Where the last event went: most likely the next one goes there, too.
    last_used: usize,
}

impl ResponsesItemIndex {
    /// The item that an event means, made if it is not there yet: pieces may come before their item. `None` when it has
    /// ended: what comes after that is not believed.
    pub(super) fn find_or_create(
        &mut self,
        event: &Value,
        kind: ResponsesItemKind,
    ) -> Option<&mut ResponsesItemBuilder> {
        let (id, number) = (non_empty_str(event, "item_id"), u32_field(event, "output_index"));
        let found = self.find(id, number, |item| item.kind == kind);
        let at = found.unwrap_or_else(|| self.push(kind, id, number));
        self.last_used = at;
        self.items.get_mut(at).filter(|item| item.progress == ItemProgress::Open)
    }

    /// The item that begins: one of which pieces came already, or a new one. `None` when it has begun before.
    pub(super) fn find_added(
        &mut self,
        event: &Value,
        item: &Value,
        kind: ResponsesItemKind,
    ) -> Option<&mut ResponsesItemBuilder> {
        let (id, number) = (non_empty_str(item, "id"), u32_field(event, "output_index"));
        let early = self.items.iter().position(|known| {
            let same_id = id.is_some() && known.id.as_deref() == id;
            let same_index = number.is_some() && known.index == number && (known.id.is_none() || id.is_none());
            !known.is_announced && known.kind == kind && (same_id || same_index)
        });
        let again = self.items.iter().any(|known| {
            known.is_announced
                && known.kind == kind
                && id.is_some()
                && known.id.as_deref() == id
                && known.index == number
        });
        if again && early.is_none() {
            return None;
        }
        let at = early.unwrap_or_else(|| self.push(kind, id, number));
        self.last_used = at;
        self.items.get_mut(at)
    }

    /// The item that ends. The end of an item that has ended says nothing new.
    pub(super) fn find_done(
        &mut self,
        event: &Value,
        item: &Value,
        kind: ResponsesItemKind,
    ) -> Option<&mut ResponsesItemBuilder> {
        let (id, number) = (non_empty_str(item, "id"), u32_field(event, "output_index"));
        let open = self.find(id, number, |known| known.kind == kind && known.progress == ItemProgress::Open);
        let known = open.or_else(|| self.find(id, number, |known| known.kind == kind && known.id.as_deref() == id));
        let at = known.unwrap_or_else(|| self.push(kind, id, number));
        self.items.get_mut(at)
    }

    /// The items that a finished answer lists, each with the item that it was in the stream. Ids may differ there, and
    /// indices have gaps: a call is known by its call id, and last of all the next one of its kind is it.
    pub(super) fn match_output<'a>(
        &mut self,
        output: &'a [Value],
        kind: impl Fn(&Value) -> ResponsesItemKind,
    ) -> Vec<(usize, &'a Value)> {
        let mut taken: Vec<usize> = Vec::new();
        let mut pairs = Vec::new();
        for (number, item) in (0..).zip(output) {
            let (kind, id, call_id) = (kind(item), non_empty_str(item, "id"), non_empty_str(item, "call_id"));
            let free = |at: &usize| !taken.contains(at);
            let find = |same: &dyn Fn(&ResponsesItemBuilder) -> bool| {
                let mut places = (0..).zip(&self.items).filter(|(_, known)| known.kind == kind && same(known));
                places.find(|(at, _)| free(at)).map(|(at, _)| at)
            };
            let at = find(&|known| id.is_some() && known.id.as_deref() == id)
                .or_else(|| find(&|known| call_id.is_some() && known.call_id.as_deref() == call_id))
                .or_else(|| find(&|known| known.index == Some(number)))
                .or_else(|| find(&|_| !kind.is_call()))
                .unwrap_or_else(|| self.push(kind, id, Some(number)));
            taken.push(at);
            pairs.push((at, item));
        }
        pairs
    }

    fn push(&mut self, kind: ResponsesItemKind, id: Option<&str>, number: Option<u32>) -> usize {
        let slot = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        let mut item = ResponsesItemBuilder::new(slot, kind, id.map(str::to_owned), number);
        // Some services count a part's number on from the item before.
        item.parts.accept_any_index = self.items.iter().any(|before| before.progress == ItemProgress::Complete);
        self.items.push(item);
        self.items.len() - 1
    }

    fn find(
        &self,
        id: Option<&str>,
        number: Option<u32>,
        fits: impl Fn(&ResponsesItemBuilder) -> bool,
    ) -> Option<usize> {
        let same_id = |item: &ResponsesItemBuilder| id.is_some() && item.id.as_deref() == id;
        let last = self.items.get(self.last_used);
        if last.is_some_and(|item| fits(item) && same_id(item) && item.index == number) {
            return Some(self.last_used);
        }
        // The latest first: an older one that looks the same has most likely ended.
        let search =
            |same: &dyn Fn(&ResponsesItemBuilder) -> bool| self.items.iter().rposition(|item| fits(item) && same(item));
        search(&|item| same_id(item) && item.index == number)
            .or_else(|| search(&same_id))
            // An open item at this index under another id: the service does not keep its ids.
            .or_else(|| search(&|item| number.is_some() && item.index == number && item.progress == ItemProgress::Open))
            .or_else(|| search(&|item| id.is_none() && number.is_none() && item.progress == ItemProgress::Open))
    }
}

fn non_empty_str<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    str_field(value, key).filter(|name| !name.is_empty())
}
