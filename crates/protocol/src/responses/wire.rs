//! The JSON of the Responses protocol: events, the response object, its items and their parts.
//!
//! Members are declared in alphabetical order, which is the order that clients have always been sent. To add a field to the
//! stream, add it to [`ResponsesEvent`] or [`ResponseObject`] and set it where the event is made.

mod items;

pub(crate) use items::McpApprovalResponseItem;
pub(super) use items::{
    AnnotationObject, FunctionCallItem, FunctionCallOutputItem, FunctionOutput, ItemObject, McpApprovalRequestItem,
    McpCallError, McpCallItem, MessageItem, PartObject, ReasoningItem,
};

use crate::record_frames::{RecordFrames, write_json};
use bytes::BytesMut;
use model::content::TextBlock;
use model::json::{ExactObject, ExactValue, JsonObject, SharedJson, WrittenJson};
use model::shared_text::SharedText;
use model::usage::Usage;
use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::borrow::Cow;
use std::sync::Arc;

/// The label under which the server's own tools are known to clients that declare MCP servers.
pub const SERVER_LABEL: &str = "headwater";

/// The tier of a response whose provider reported none.
pub(super) const DEFAULT_SERVICE_TIER: &str = "default";

/// The request fields that a response repeats, in alphabetical order.
pub(super) const ECHOED_FIELDS: [&str; 22] = [
    "background",
    "conversation",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// One event of the stream. Every type of event has a few of these members.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(crate) struct ResponsesEvent<'a> {
    pub(super) annotation: Option<AnnotationObject<'a>>,
    pub(super) annotation_index: Option<u32>,
    pub(super) arguments: Option<&'a str>,
    pub(super) code: Option<&'a str>,
    pub(super) content_index: Option<usize>,
    pub(super) delta: Option<&'a str>,
    pub(super) item: Option<&'a SentItem>,
    pub(super) item_id: Option<&'a str>,
    pub(super) logprobs: Option<&'a [Value]>,
    pub(super) output_index: Option<usize>,
    pub(super) part: Option<PartObject<'a>>,
    pub(super) partial_image_b64: Option<&'a str>,
    pub(super) partial_image_index: Option<u32>,
    pub(super) refusal: Option<&'a str>,
    pub(super) response: Option<&'a ResponseObject>,
    /// Instead of `response`, if it is written already. It has no items.
    #[serde(rename = "response")]
    pub(super) written_response: Option<&'a SentItem>,
    pub(super) sequence_number: u64,
    pub(super) summary_index: Option<u32>,
    pub(super) text: Option<&'a str>,
    #[serde(rename = "type")]
    pub(super) event_type: Cow<'a, str>,
    /// The block whose text the event repeats.
    #[serde(skip)]
    pub(super) block: Option<&'a TextBlock>,
}

impl<'a> ResponsesEvent<'a> {
    pub(super) fn new(event_type: impl Into<Cow<'a, str>>) -> Self {
        Self { event_type: event_type.into(), ..Self::default() }
    }

    /// Adds a frame whose data is this event, or contains it.
    pub(crate) fn push_to(&self, frames: &mut RecordFrames<'_>, kind: &str, data: &impl Serialize) {
        if self.has_long_text() {
            return frames.push_sharing(kind, data, || self.long_texts());
        }
        frames.reserve(self.record_text_bytes());
        frames.push(kind, data);
    }

    /// The size of what may be long in this event and in the next one of its record: a text is repeated by the part that
    /// follows it. A buffer that grew for the second one would copy the first.
    fn record_text_bytes(&self) -> usize {
        self.text_bytes() + self.text.map_or(0, str::len)
    }

    /// The size of what may be long and is not shared.
    fn text_bytes(&self) -> usize {
        let texts = [self.text, self.part.as_ref().and_then(PartObject::text_of)];
        texts.into_iter().flatten().map(str::len).chain(self.items().map(SentItem::short_bytes)).sum()
    }

    /// The texts that are not copied.
    fn long_texts(&self) -> Vec<SharedJson> {
        let text = self.block.and_then(TextBlock::long_text).map(SharedText::to_json);
        text.into_iter().chain(self.items().flat_map(SentItem::long_pieces)).collect()
    }

    fn has_long_text(&self) -> bool {
        self.block.is_some_and(|block| block.long_text().is_some()) || self.items().any(SentItem::has_long_text)
    }

    fn items(&self) -> impl Iterator<Item = &'a SentItem> {
        let of_response = self.response.into_iter().flat_map(|response| &response.output).map(|item| &**item);
        self.item.into_iter().chain(of_response)
    }
}

/// A delta of a text without log probabilities. Nearly all events are of this type, so it is not written member by member.
pub(crate) struct TextDeltaEvent<'a> {
    pub(super) content_index: usize,
    pub(super) delta: &'a str,
    pub(super) item_id: &'a str,
    pub(super) output_index: usize,
    pub(super) sequence_number: u64,
}

impl TextDeltaEvent<'_> {
    pub(super) const TYPE: &'static str = "response.output_text.delta";

    pub(super) fn to_event(&self) -> ResponsesEvent<'_> {
        ResponsesEvent {
            content_index: Some(self.content_index),
            delta: Some(self.delta),
            item_id: Some(self.item_id),
            logprobs: Some(&[]),
            output_index: Some(self.output_index),
            sequence_number: self.sequence_number,
            ..ResponsesEvent::new(Self::TYPE)
        }
    }

    /// Appends the JSON of [`Self::to_event`].
    pub(super) fn write_json(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"content_index\":");
        write_json(out, &self.content_index);
        out.extend_from_slice(b",\"delta\":");
        write_json(out, self.delta);
        out.extend_from_slice(b",\"item_id\":");
        write_json(out, self.item_id);
        out.extend_from_slice(b",\"logprobs\":[],\"output_index\":");
        write_json(out, &self.output_index);
        out.extend_from_slice(b",\"sequence_number\":");
        write_json(out, &self.sequence_number);
        out.extend_from_slice(b",\"type\":\"response.output_text.delta\"}");
    }
}

/// A response. SDKs validate its shape in every lifecycle event, so every member is always present.
///
/// Members that repeat the request ([`ECHOED_FIELDS`]) are kept as the client wrote them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ResponseObject {
    pub(super) background: Value,
    pub(super) completed_at: Option<u64>,
    pub(super) conversation: Value,
    pub(super) created_at: u64,
    pub(super) error: Option<ResponseError>,
    pub(super) frequency_penalty: f64,
    pub(super) id: String,
    pub(super) incomplete_details: Option<IncompleteDetails>,
    pub(super) instructions: Value,
    pub(super) max_output_tokens: Value,
    pub(super) max_tool_calls: Value,
    pub(super) metadata: Value,
    pub(super) model: Value,
    pub(super) object: &'static str,
    pub(super) output: Vec<Arc<SentItem>>,
    pub(super) parallel_tool_calls: Value,
    pub(super) presence_penalty: f64,
    pub(super) previous_response_id: Value,
    pub(super) prompt_cache_key: Value,
    pub(super) reasoning: Value,
    pub(super) safety_identifier: Value,
    pub(super) service_tier: Value,
    pub(super) status: &'static str,
    pub(super) store: Value,
    pub(super) temperature: Value,
    pub(super) text: Value,
    pub(super) tool_choice: Value,
    pub(super) tools: Value,
    pub(super) top_logprobs: Value,
    pub(super) top_p: Value,
    pub(super) truncation: Value,
    pub(super) usage: Option<UsageObject>,
    pub(super) user: Value,
}

/// An item as it was sent. A response repeats its items, which may be long, so copies of it share them.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct SentItem(Option<WrittenJson>);

impl SentItem {
    pub(crate) fn new(item: &impl Serialize) -> Arc<Self> {
        Self::with_long_texts(item, Vec::new())
    }

    /// An item with these texts, which are not copied.
    pub(crate) fn with_long_texts(item: &impl Serialize, long_texts: Vec<SharedJson>) -> Arc<Self> {
        // The keys are texts and the numbers finite, so this cannot fail.
        Arc::new(Self(WrittenJson::new(item, long_texts)))
    }

    /// Its pieces that are not copied by what repeats it.
    pub(crate) fn long_pieces(&self) -> impl Iterator<Item = SharedJson> {
        self.0.iter().flat_map(WrittenJson::long_pieces)
    }

    pub(crate) fn has_long_text(&self) -> bool {
        self.0.as_ref().is_some_and(WrittenJson::has_long_pieces)
    }

    fn short_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, WrittenJson::short_bytes)
    }
}

impl ResponseObject {
    /// A response that has just started, to a request that says nothing.
    pub(super) fn initial() -> Self {
        Self {
            background: false.into(),
            object: "response",
            parallel_tool_calls: true.into(),
            service_tier: DEFAULT_SERVICE_TIER.into(),
            status: "in_progress",
            store: true.into(),
            temperature: 1.0.into(),
            text: text_format(JsonObject::new()),
            tool_choice: "auto".into(),
            tools: Value::Array(Vec::new()),
            top_logprobs: 0.into(),
            top_p: 1.0.into(),
            truncation: "disabled".into(),
            ..Self::default()
        }
    }

    /// The member that repeats this field of the request, if it is one of [`ECHOED_FIELDS`].
    pub(super) fn echoed_member(&mut self, name: &str) -> Option<&mut Value> {
        Some(match name {
            "background" => &mut self.background,
            "conversation" => &mut self.conversation,
            "instructions" => &mut self.instructions,
            "max_output_tokens" => &mut self.max_output_tokens,
            "max_tool_calls" => &mut self.max_tool_calls,
            "metadata" => &mut self.metadata,
            "model" => &mut self.model,
            "parallel_tool_calls" => &mut self.parallel_tool_calls,
            "previous_response_id" => &mut self.previous_response_id,
            "prompt_cache_key" => &mut self.prompt_cache_key,
            "reasoning" => &mut self.reasoning,
            "safety_identifier" => &mut self.safety_identifier,
            "service_tier" => &mut self.service_tier,
            "store" => &mut self.store,
            "temperature" => &mut self.temperature,
            "text" => &mut self.text,
            "tool_choice" => &mut self.tool_choice,
            "tools" => &mut self.tools,
            "top_logprobs" => &mut self.top_logprobs,
            "top_p" => &mut self.top_p,
            "truncation" => &mut self.truncation,
            "user" => &mut self.user,
            _ => return None,
        })
    }
}

/// Clients of this protocol expect texts; the native one allows any JSON.
pub(super) fn metadata_texts(metadata: &ExactObject) -> JsonObject {
    let text = |value: &ExactValue| match value {
        ExactValue::String(text) => text.clone(),
        other => other.to_string(),
    };
    metadata.iter().map(|(name, value)| (name.clone(), text(value).into())).collect()
}

/// The member `text` with its format, which a request may leave out.
pub(super) fn text_format(mut text: JsonObject) -> Value {
    let plain = || JsonObject::from_iter([("type".to_owned(), "text".into())]).into();
    text.entry("format").or_insert_with(plain);
    text.into()
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ResponseError {
    pub(super) code: &'static str,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct IncompleteDetails {
    pub(super) reason: &'static str,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct UsageObject {
    input_tokens: u64,
    input_tokens_details: InputTokensDetails,
    output_tokens: u64,
    output_tokens_details: OutputTokensDetails,
    total_tokens: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct InputTokensDetails {
    cache_write_tokens: u64,
    cached_tokens: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct OutputTokensDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for UsageObject {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            input_tokens_details: InputTokensDetails {
                cache_write_tokens: usage.cache_write_tokens,
                cached_tokens: usage.cached_tokens,
            },
            output_tokens: usage.output_tokens,
            output_tokens_details: OutputTokensDetails { reasoning_tokens: usage.reasoning_tokens },
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_echoed_field_has_its_member() {
        for name in ECHOED_FIELDS {
            let mut object = ResponseObject::initial();
            *object.echoed_member(name).unwrap() = "echoed".into();
            assert_eq!(serde_json::to_value(&object).unwrap()[name], "echoed");
        }
        assert!(ResponseObject::initial().echoed_member("status").is_none());
        assert!(ECHOED_FIELDS.is_sorted());
    }

    #[test]
    fn a_delta_is_written_as_its_event() {
        let long = "a \u{fffd} word ".repeat(100);
        for delta in ["", "Hi", "\"quoted\" \\ back", "line\nbreak \u{1}", "ünï cödé 🦀", &long] {
            for (number, item_id) in [(0, "msg_1"), (u64::MAX, "an \"id\"")] {
                let event = TextDeltaEvent {
                    content_index: 3,
                    delta,
                    item_id,
                    output_index: usize::try_from(number % 17).unwrap(),
                    sequence_number: number,
                };
                let (mut written, mut by_member) = (BytesMut::new(), BytesMut::new());
                event.write_json(&mut written);
                write_json(&mut by_member, &event.to_event());
                assert_eq!(written, by_member);
            }
        }
    }
}
