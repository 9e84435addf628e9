//! Finds the item of an event.
//!
//! Events name their item twice, by `item_id` and by `output_index`, and services get either wrong: ids that change from
//! event to event, ids that all items share, one index for two items. The id decides if it is known and unique, else the
//! index. Two items are never merged: a new item has its own slot, whatever its index.

use super::item_builder::{ItemProgress, ResponsesItemBuilder, ResponsesItemKind};
use super::part_sequencer::TextPartKind;
use crate::json::{str_field, u32_field};
use model::model_turn::ModelEvent;
use serde_json::Value;

/// All items of a response, in the order of their first events. An item's slot is its position.
#[derive(Debug, Default)]
pub(super) struct ResponsesItemIndex {
    pub(super) items: Vec<ResponsesItemBuilder>,
    /// The item of the last event: most likely the next event's, too.
    last_used: usize,
}

/// How an event names its item.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemAddress<'a> {
    id: Option<&'a str>,
    index: Option<u32>,
}

impl<'a> ItemAddress<'a> {
    /// An empty id is none.
    pub(super) fn new(id: Option<&'a str>, index: Option<u32>) -> Self {
        Self { id: id.filter(|id| !id.is_empty()), index }
    }

    pub(super) fn of_event(event: &'a Value) -> Self {
        Self::new(str_field(event, "item_id"), u32_field(event, "output_index"))
    }
}

/// How an event names its part.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartAddress<'a> {
    pub(super) item: ItemAddress<'a>,
    pub(super) kind: TextPartKind,
    pub(super) index: u32,
}

impl<'a> PartAddress<'a> {
    pub(super) fn of_event(kind: TextPartKind, event: &'a Value) -> Self {
        let field = if kind == TextPartKind::ReasoningSummary { "summary_index" } else { "content_index" };
        Self { item: ItemAddress::of_event(event), kind, index: u32_field(event, field).unwrap_or_default() }
    }
}

impl ResponsesItemIndex {
    /// The item of an event, created and started if necessary, because deltas may precede their item. `None` if the item
    /// has ended: later deltas are passed on as unknown events.
    pub(super) fn find_or_create(
        &mut self,
        ItemAddress { id, index }: ItemAddress<'_>,
        kind: ResponsesItemKind,
        out: &mut Vec<ModelEvent>,
    ) -> Option<&mut ResponsesItemBuilder> {
        let found = self.find(id, index, |item| item.kind == kind);
        let at = found.unwrap_or_else(|| self.push(kind, id, index));
        self.last_used = at;
        let item = self.items.get_mut(at).filter(|item| item.progress == ItemProgress::Open)?;
        item.emit_started(&Value::Null, out);
        Some(item)
    }

    /// The item that begins, which may have deltas already. `None` if it has begun before.
    pub(super) fn find_added(
        &mut self,
        event: &Value,
        item: &Value,
        kind: ResponsesItemKind,
    ) -> Option<&mut ResponsesItemBuilder> {
        let (id, index) = (non_empty_str(item, "id"), u32_field(event, "output_index"));
        let announced_late = self.items.iter().position(|known| {
            let same_id = id.is_some() && known.id.as_deref() == id;
            let same_index = index.is_some() && known.index == index && (known.id.is_none() || id.is_none());
            !known.is_announced && known.kind == kind && (same_id || same_index)
        });
        let is_repeated = self.items.iter().any(|known| {
            known.is_announced
                && known.kind == kind
                && id.is_some()
                && known.id.as_deref() == id
                && known.index == index
        });
        if is_repeated && announced_late.is_none() {
            return None;
        }
        let at = announced_late.unwrap_or_else(|| self.push(kind, id, index));
        self.last_used = at;
        self.items.get_mut(at)
    }

    /// The item that ends, or has ended: a repeated end changes nothing.
    pub(super) fn find_done(
        &mut self,
        event: &Value,
        item: &Value,
        kind: ResponsesItemKind,
    ) -> Option<&mut ResponsesItemBuilder> {
        let (id, index) = (non_empty_str(item, "id"), u32_field(event, "output_index"));
        let open = self.find(id, index, |known| known.kind == kind && known.progress == ItemProgress::Open);
        let known = open.or_else(|| self.find(id, index, |known| known.kind == kind && known.id.as_deref() == id));
        let at = known.unwrap_or_else(|| self.push(kind, id, index));
        self.items.get_mut(at)
    }

    /// Pairs the items of a finished response with those of the stream. Ids may differ there, and indices have gaps: then a
    /// call is matched by its call id, and any other item by its kind and order.
    pub(super) fn match_output<'a>(
        &mut self,
        output: &'a [Value],
        kind: impl Fn(&Value) -> ResponsesItemKind,
    ) -> Vec<(usize, &'a Value)> {
        let mut taken: Vec<usize> = Vec::new();
        let mut pairs = Vec::new();
        for (index, item) in (0..).zip(output) {
            let (kind, id, call_id) = (kind(item), non_empty_str(item, "id"), non_empty_str(item, "call_id"));
            let is_free = |at: &usize| !taken.contains(at);
            let find = |same: &dyn Fn(&ResponsesItemBuilder) -> bool| {
                let mut candidates = (0..).zip(&self.items).filter(|(_, known)| known.kind == kind && same(known));
                candidates.find(|(at, _)| is_free(at)).map(|(at, _)| at)
            };
            let at = find(&|known| id.is_some() && known.id.as_deref() == id)
                .or_else(|| find(&|known| call_id.is_some() && known.call_id.as_deref() == call_id))
                .or_else(|| find(&|known| known.index == Some(index)))
                .or_else(|| find(&|_| !kind.is_call()))
                .unwrap_or_else(|| self.push(kind, id, Some(index)));
            taken.push(at);
            pairs.push((at, item));
        }
        pairs
    }

    fn push(&mut self, kind: ResponsesItemKind, id: Option<&str>, index: Option<u32>) -> usize {
        let slot = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        let mut item = ResponsesItemBuilder::new(slot, kind, id.map(str::to_owned), index);
        // Some services continue part indices from the previous item.
        item.parts.accept_any_index = self.items.iter().any(|before| before.progress == ItemProgress::Complete);
        self.items.push(item);
        self.items.len() - 1
    }

    fn find(
        &self,
        id: Option<&str>,
        index: Option<u32>,
        fits: impl Fn(&ResponsesItemBuilder) -> bool,
    ) -> Option<usize> {
        let same_id = |item: &ResponsesItemBuilder| id.is_some() && item.id.as_deref() == id;
        let last = self.items.get(self.last_used);
        if last.is_some_and(|item| fits(item) && same_id(item) && item.index == index) {
            return Some(self.last_used);
        }
        // The latest first: an older match has most likely ended.
        let search =
            |same: &dyn Fn(&ResponsesItemBuilder) -> bool| self.items.iter().rposition(|item| fits(item) && same(item));
        search(&|item| same_id(item) && item.index == index)
            .or_else(|| search(&same_id))
            // An open item at this index with another id: the service's ids are not stable.
            .or_else(|| search(&|item| index.is_some() && item.index == index && item.progress == ItemProgress::Open))
            .or_else(|| search(&|item| id.is_none() && index.is_none() && item.progress == ItemProgress::Open))
    }
}

fn non_empty_str<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    str_field(value, key).filter(|name| !name.is_empty())
}
