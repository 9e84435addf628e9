//! A piece of a block: the event of which there are a million, read without making a tree of it.

use super::block::Kind;
use crate::json;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// More of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    /// Words.
    Text(&'a str),
    /// Thoughts.
    Thinking(&'a str),
    /// The JSON text of an input.
    Input(&'a str),
}

impl<'a> Piece<'a> {
    /// Looks at an event's `delta`. `None` for what is no piece.
    pub(super) fn of(delta: &'a Value) -> Option<Self> {
        match json::text(delta, "type")? {
            "text_delta" => json::text(delta, "text").map(Self::Text),
            "thinking_delta" => json::text(delta, "thinking").map(Self::Thinking),
            "input_json_delta" => json::text(delta, "partial_json").map(Self::Input),
            _ => None,
        }
    }

    /// The block that it would be a piece of, were that not announced. A call cannot be guessed: it has a name.
    pub(super) fn block(self) -> Option<(Kind, Value)> {
        match self {
            Self::Text(_) => Some((Kind::Text, json!({"type": "text"}))),
            Self::Thinking(_) => Some((Kind::Thinking, json!({"type": "thinking"}))),
            Self::Input(_) => None,
        }
    }
}

/// An event that is a piece.
#[derive(Deserialize)]
pub(super) struct Quick<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    /// The block.
    pub(super) index: u32,
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Words<'a>>,
    #[serde(borrow)]
    thinking: Option<Words<'a>>,
    #[serde(borrow)]
    partial_json: Option<Words<'a>>,
}

/// In a struct of its own, a text inside an `Option` is borrowed where it has no escapes.
#[derive(Deserialize)]
struct Words<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Quick<'a> {
    /// Reads an event. `None` for everything that has to be looked at more closely.
    pub(super) fn read(data: &'a str) -> Option<Self> {
        serde_json::from_str(data).ok().filter(|event: &Self| event.kind == "content_block_delta")
    }

    /// The piece.
    pub(super) fn piece(&self) -> Option<Piece<'_>> {
        let Delta { kind, text, thinking, partial_json } = &self.delta;
        match kind.as_ref() {
            "text_delta" => text.as_ref().map(|words| Piece::Text(&words.0)),
            "thinking_delta" => thinking.as_ref().map(|words| Piece::Thinking(&words.0)),
            "input_json_delta" => partial_json.as_ref().map(|words| Piece::Input(&words.0)),
            _ => None,
        }
    }
}
