//! A piece of a block: the event of which there are a million, read without making a tree of it.

use super::block_builder::ContentBlockKind;
use crate::json;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// More of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum ContentBlockDelta<'a> {
    /// Words.
    Text(&'a str),
    /// Thoughts.
    Thinking(&'a str),
    /// The JSON text of an input.
    Input(&'a str),
}

impl<'a> ContentBlockDelta<'a> {
    /// Looks at an event's `delta`. `None` for what is no piece.
    pub(super) fn from_json(delta: &'a Value) -> Option<Self> {
        match json::str_field(delta, "type")? {
            "text_delta" => json::str_field(delta, "text").map(Self::Text),
            "thinking_delta" => json::str_field(delta, "thinking").map(Self::Thinking),
            "input_json_delta" => json::str_field(delta, "partial_json").map(Self::Input),
            _ => None,
        }
    }

    /// The block that it would be a piece of, were that not announced. A call cannot be guessed: it has a name.
    pub(super) fn implied_block(self) -> Option<(ContentBlockKind, Value)> {
        match self {
            Self::Text(_) => Some((ContentBlockKind::Text, json!({"type": "text"}))),
            Self::Thinking(_) => Some((ContentBlockKind::Thinking, json!({"type": "thinking"}))),
            Self::Input(_) => None,
        }
    }
}

/// An event that is a piece.
#[derive(Deserialize)]
pub(super) struct ContentBlockDeltaEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    /// The block.
    pub(super) index: u32,
    #[serde(borrow)]
    delta: DeltaFields<'a>,
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

/// In a struct of its own, a text inside an `Option` is borrowed where it has no escapes.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> ContentBlockDeltaEvent<'a> {
    /// Reads an event. `None` for everything that has to be looked at more closely.
    pub(super) fn parse(data: &'a str) -> Option<Self> {
        serde_json::from_str(data).ok().filter(|event: &Self| event.kind == "content_block_delta")
    }

    /// The piece.
    pub(super) fn block_delta(&self) -> Option<ContentBlockDelta<'_>> {
        let DeltaFields { kind, text, thinking, partial_json } = &self.delta;
        match kind.as_ref() {
            "text_delta" => text.as_ref().map(|words| ContentBlockDelta::Text(&words.0)),
            "thinking_delta" => thinking.as_ref().map(|words| ContentBlockDelta::Thinking(&words.0)),
            "input_json_delta" => partial_json.as_ref().map(|words| ContentBlockDelta::Input(&words.0)),
            _ => None,
        }
    }
}
