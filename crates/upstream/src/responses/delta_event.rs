//! The usual delta of a text or of a call's arguments.

use super::event_kind::{ArgumentsKind, ResponsesEventKind};
use super::item_index::{ItemAddress, PartAddress};
use super::part_sequencer::TextPartKind;
use crate::delta_json::{BorrowedText, parse_delta};
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Debug, Deserialize)]
pub(super) struct ResponsesDeltaEvent<'a> {
    #[serde(rename = "type", borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) delta: Cow<'a, str>,
    #[serde(borrow)]
    item_id: Option<BorrowedText<'a>>,
    output_index: Option<u32>,
    content_index: Option<u32>,
    summary_index: Option<u32>,
    /// The service sends an empty list where nobody asked for log probabilities.
    #[serde(rename = "logprobs")]
    _logprobs: Option<[(); 0]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsualDeltaKind {
    Text(TextPartKind),
    Arguments(ArgumentsKind),
}

impl<'a> ResponsesDeltaEvent<'a> {
    pub(super) fn parse(data: &'a str) -> Option<(UsualDeltaKind, Self)> {
        let event: Self = parse_delta(data)?;
        let kind = match ResponsesEventKind::from_name(&event.name) {
            ResponsesEventKind::TextDelta(kind) => UsualDeltaKind::Text(kind),
            ResponsesEventKind::ArgumentsDelta(kind) => UsualDeltaKind::Arguments(kind),
            _ => return None,
        };
        Some((kind, event))
    }

    pub(super) fn item(&self) -> ItemAddress<'_> {
        let id = self.item_id.as_ref().map(|id| id.0.as_ref());
        ItemAddress::new(id, self.output_index)
    }

    pub(super) fn part(&self, kind: TextPartKind) -> PartAddress<'_> {
        let index = if kind == TextPartKind::ReasoningSummary { self.summary_index } else { self.content_index };
        PartAddress { item: self.item(), kind, index: index.unwrap_or_default() }
    }
}
