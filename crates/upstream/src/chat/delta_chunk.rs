//! The usual chunk: one choice with text, reasoning, or a part of a call.

use super::reasoning::{ReasoningDelta, ReasoningField};
use super::tool_calls::ToolCallDelta;
use crate::delta_json::{Absent, BorrowedText, JsonObjectOf, parse_delta};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct ChatDeltaChunk<'a> {
    #[serde(borrow)]
    object: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(super) model: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(super) service_tier: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    choices: [JsonObjectOf<ChatDeltaChoice<'a>>; 1],
    #[serde(rename = "error")]
    _error: Absent,
    #[serde(rename = "usage")]
    _usage: Absent,
    #[serde(rename = "x_groq")]
    _x_groq: Absent,
}

#[derive(Debug, Deserialize)]
struct ChatDeltaChoice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: JsonObjectOf<ChatDelta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<BorrowedText<'a>>,
    #[serde(rename = "logprobs")]
    _logprobs: Absent,
    #[serde(rename = "error")]
    _error: Absent,
    #[serde(rename = "object")]
    _object: Absent,
    #[serde(rename = "usage")]
    _usage: Absent,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatDelta<'a> {
    #[serde(borrow)]
    pub(super) content: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    reasoning: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_calls: Option<[JsonObjectOf<CallDelta<'a>>; 1]>,
    #[serde(rename = "reasoning_details")]
    _reasoning_details: Absent,
    #[serde(rename = "refusal")]
    _refusal: Absent,
    #[serde(rename = "images")]
    _images: Absent,
    #[serde(rename = "annotations")]
    _annotations: Absent,
    #[serde(rename = "function_call")]
    _function_call: Absent,
    #[serde(rename = "audio")]
    _audio: Absent,
}

#[derive(Debug, Deserialize)]
struct CallDelta<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    function: Option<JsonObjectOf<FunctionDelta<'a>>>,
    #[serde(rename = "extra_content")]
    _extra_content: Absent,
}

#[derive(Debug, Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    arguments: Option<BorrowedText<'a>>,
}

impl<'a> ChatDeltaChunk<'a> {
    pub(super) fn parse(data: &'a str) -> Option<Self> {
        let chunk: Self = parse_delta(data)?;
        let [JsonObjectOf(choice)] = &chunk.choices;
        let JsonObjectOf(delta) = &choice.delta;
        let is_error = chunk.object.as_ref().is_some_and(|object| object.0 == "error");
        let is_last = choice.finish_reason.as_ref().is_some_and(|reason| !reason.0.is_empty());
        // An empty delta may stand next to a complete message.
        let has_members = delta.content.is_some()
            || delta.reasoning_content.is_some()
            || delta.reasoning.is_some()
            || delta.tool_calls.is_some();
        let is_usual = !is_error && choice.index.unwrap_or_default() == 0 && !is_last && has_members;
        is_usual.then_some(chunk)
    }

    /// The text of a chunk that has nothing else.
    pub(super) fn only_text(&self) -> Option<&str> {
        let [JsonObjectOf(choice)] = &self.choices;
        let JsonObjectOf(delta) = &choice.delta;
        let is_alone = delta.reasoning_content.is_none() && delta.reasoning.is_none() && delta.tool_calls.is_none();
        delta.content.as_ref().filter(|_| is_alone).map(|text| text.0.as_ref())
    }

    pub(super) fn into_delta(self) -> ChatDelta<'a> {
        let [JsonObjectOf(choice)] = self.choices;
        choice.delta.0
    }
}

impl ChatDelta<'_> {
    /// Takes the reasoning out of the delta. If two fields have it, the first counts.
    pub(super) fn take_reasoning(&mut self) -> Option<ReasoningDelta> {
        let fields = [
            (ReasoningField::ReasoningContent, self.reasoning_content.take()),
            (ReasoningField::Reasoning, self.reasoning.take()),
        ];
        let mut texts = fields.into_iter().filter_map(|(field, text)| Some((field, text?.0)));
        let (field, text) = texts.find(|(_, text)| !text.is_empty())?;
        Some(ReasoningDelta::from_text(field, text.into_owned()))
    }

    pub(super) fn take_call(&mut self) -> Option<ToolCallDelta> {
        let [JsonObjectOf(CallDelta { index, id, function, .. })] = self.tool_calls.take()?;
        let (name, arguments) =
            function.map_or((None, None), |JsonObjectOf(function)| (function.name, function.arguments));
        Some(ToolCallDelta {
            index,
            id: BorrowedText::into_string(id),
            name: BorrowedText::into_string(name),
            arguments: BorrowedText::into_string(arguments),
            extra_content: None,
        })
    }
}
