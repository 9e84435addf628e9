//! Deltas of a content block: by far the most frequent events, so they are parsed without building a JSON tree.

use super::block_builder::ContentBlockKind;
use crate::delta_json::{BorrowedText, JsonObjectOf, parse_delta};
use crate::json;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

#[derive(Clone, Copy, Debug)]
pub(super) enum ContentBlockDelta<'a> {
    Text(&'a str),
    Thinking(&'a str),
    /// JSON of a tool's input.
    Input(&'a str),
}

impl<'a> ContentBlockDelta<'a> {
    /// Parses the `delta` of an event; `None` for unknown types.
    pub(super) fn from_json(delta: &'a Value) -> Option<Self> {
        match json::str_field(delta, "type")? {
            "text_delta" => json::str_field(delta, "text").map(Self::Text),
            "thinking_delta" => json::str_field(delta, "thinking").map(Self::Thinking),
            "input_json_delta" => json::str_field(delta, "partial_json").map(Self::Input),
            _ => None,
        }
    }

    /// The block of a delta whose block was never started. A call cannot be guessed, because it needs a name.
    pub(super) fn implied_block(self) -> Option<(ContentBlockKind, Value)> {
        match self {
            Self::Text(_) => Some((ContentBlockKind::Text, json!({"type": "text"}))),
            Self::Thinking(_) => Some((ContentBlockKind::Thinking, json!({"type": "thinking"}))),
            Self::Input(_) => None,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct ContentBlockDeltaEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    pub(super) index: u32,
    #[serde(borrow)]
    delta: JsonObjectOf<DeltaFields<'a>>,
}

#[derive(Deserialize)]
struct DeltaFields<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    thinking: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    partial_json: Option<BorrowedText<'a>>,
}

impl<'a> ContentBlockDeltaEvent<'a> {
    /// `None` for every event that needs a full parse.
    pub(super) fn parse(data: &'a str) -> Option<Self> {
        parse_delta(data).filter(|event: &Self| event.kind == "content_block_delta")
    }

    pub(super) fn block_delta(&self) -> Option<ContentBlockDelta<'_>> {
        let DeltaFields { kind, text, thinking, partial_json } = &self.delta.0;
        match kind.as_ref() {
            "text_delta" => text.as_ref().map(|text| ContentBlockDelta::Text(&text.0)),
            "thinking_delta" => thinking.as_ref().map(|text| ContentBlockDelta::Thinking(&text.0)),
            "input_json_delta" => partial_json.as_ref().map(|text| ContentBlockDelta::Input(&text.0)),
            _ => None,
        }
    }
}
