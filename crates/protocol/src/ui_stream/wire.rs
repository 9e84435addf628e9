//! The chunks of a stream. The order of members is the order on the wire.

use crate::citations::TextCitation;
use crate::record_frames::RecordFrames;
use model::content::{ContentPart, UrlKind};
use model::event::InputMessage;
use model::fold::RunFold;
use model::id::ID_BYTES_MAX;
use model::item::CallKind;
use model::json::ExactValue;
use model::usage::Usage;
use model::{ItemId, Millis, TaskId, ThreadId};
use serde::{Serialize, Serializer};
use serde_with::skip_serializing_none;
use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// What a log says of an image of unknown format.
const ANY_IMAGE: &str = "image/*";
const ANY_FILE: &str = "application/octet-stream";

/// One chunk of the stream. Every type of chunk has a few of the optional members.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiChunk<'a> {
    #[serde(rename = "type")]
    pub(super) chunk_type: Cow<'static, str>,
    pub(super) id: Option<UiChunkId<'a>>,
    pub(super) message_id: Option<&'a str>,
    /// Never empty.
    pub(super) delta: Option<&'a str>,
    pub(super) approval_id: Option<&'a str>,
    pub(super) tool_call_id: Option<&'a str>,
    pub(super) tool_name: Option<&'a str>,
    pub(super) input_text_delta: Option<&'a str>,
    pub(super) input: Option<ExactValue>,
    pub(super) output: Option<ExactValue>,
    pub(super) preliminary: Option<bool>,
    pub(super) error_text: Option<Cow<'a, str>>,
    /// Whether the tool is unknown to the client. Only tools of clients are known to it.
    pub(super) dynamic: Option<bool>,
    /// Whether the client has nothing to do for the call.
    pub(super) provider_executed: Option<bool>,
    pub(super) source_id: Option<Cow<'a, str>>,
    pub(super) url: Option<&'a str>,
    pub(super) media_type: Option<&'a str>,
    pub(super) title: Option<Cow<'a, str>>,
    pub(super) filename: Option<&'a str>,
    pub(super) tool_metadata: Option<UiToolMetadata<'a>>,
    pub(super) approved: Option<bool>,
    pub(super) approval_descriptor: Option<UiQuestion<'a>>,
    pub(super) reason: Option<&'a str>,
    pub(super) citations: Option<Vec<UiCitation<'a>>>,
    pub(super) provider_metadata: Option<UiProviderMetadata<'a>>,
    pub(super) parts: Option<Vec<UiInputPart>>,
    pub(super) data: Option<ExactValue>,
    /// Shown to the client, and no part of its message.
    pub(super) transient: Option<bool>,
    pub(super) finish_reason: Option<&'static str>,
    pub(super) message_metadata: Option<UiMessageMetadata<'a>>,
}

impl UiChunk<'_> {
    pub(super) fn new(chunk_type: impl Into<Cow<'static, str>>) -> Self {
        Self { chunk_type: chunk_type.into(), ..Self::default() }
    }

    pub(super) fn chunk_type(&self) -> &str {
        &self.chunk_type
    }

    pub(super) fn is_transient(&self) -> bool {
        self.transient == Some(true)
    }

    /// The id of a data part, which replaces the part of the same type and id.
    pub(super) fn data_part_id(&self) -> Option<&str> {
        match self.id {
            Some(UiChunkId::Name(id)) if self.chunk_type.starts_with("data-") => Some(id),
            _ => None,
        }
    }
}

/// The id of a text, a part of a summary, or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UiChunkId<'a> {
    Name(&'a str),
    /// A part of an item. Every delta has such an id, so it is not made before it is written.
    Part(&'a ItemId, u32),
}

impl fmt::Display for UiChunkId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Part(item, index) => write!(f, "{item}:{index}"),
        }
    }
}

impl Serialize for UiChunkId<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Name(name) = self {
            return serializer.serialize_str(name);
        }
        let mut text = ShortText::default();
        match write!(text, "{self}") {
            Ok(()) => serializer.serialize_str(text.as_str()),
            Err(_) => serializer.collect_str(self),
        }
    }
}

/// Room for the id of an item and a number, without an allocation.
struct ShortText {
    bytes: [u8; ID_BYTES_MAX + 16],
    len: usize,
}

impl Default for ShortText {
    fn default() -> Self {
        Self { bytes: [0; ID_BYTES_MAX + 16], len: 0 }
    }
}

impl ShortText {
    fn as_str(&self) -> &str {
        let text = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.saturating_add(text.len());
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Receives the chunks of a run.
pub(super) trait UiSink {
    fn push(&mut self, chunk: &UiChunk<'_>);
}

impl UiSink for RecordFrames<'_> {
    fn push(&mut self, chunk: &UiChunk<'_>) {
        Self::push(self, &chunk.chunk_type, chunk);
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiToolMetadata<'a> {
    pub(super) kind: Option<CallKind>,
    pub(super) server_label: Option<&'a str>,
    pub(super) server_tool: Option<&'a str>,
    pub(super) agent: Option<&'a str>,
    /// The sub-agent that made the call.
    pub(super) subagent: Option<&'a str>,
}

/// A question of a tool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct UiQuestion<'a> {
    #[serde(rename = "type")]
    pub(super) descriptor_type: &'static str,
    pub(super) message: &'a str,
    pub(super) schema: Option<&'a serde_json::Value>,
    pub(super) url: Option<&'a str>,
}

/// What a text cites, in the SDK's shape.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiCitation<'a> {
    pub(super) source: UiCitedSource<'a>,
    pub(super) start_index: usize,
    pub(super) end_index: usize,
    pub(super) cited_text: Option<&'a str>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiCitedSource<'a> {
    #[serde(rename = "type")]
    pub(super) object_type: &'static str,
    pub(super) source_type: &'static str,
    pub(super) id: Cow<'a, str>,
    pub(super) url: Option<&'a str>,
    pub(super) media_type: Option<&'static str>,
    pub(super) title: Option<Cow<'a, str>>,
    pub(super) filename: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct UiProviderMetadata<'a> {
    pub(super) headwater: UiTextMetadata<'a>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct UiTextMetadata<'a> {
    pub(super) citations: Vec<TextCitation<'a>>,
}

/// A part of a message that a user sent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiInputPart {
    #[serde(rename = "type")]
    pub(super) part_type: &'static str,
    pub(super) text: Option<String>,
    pub(super) media_type: Option<String>,
    pub(super) filename: Option<String>,
    pub(super) url: Option<String>,
}

/// The parts of a message of the input.
pub(super) fn input_parts(message: &InputMessage) -> Vec<UiInputPart> {
    let text = |text: String| UiInputPart { part_type: "text", text: Some(text), ..UiInputPart::default() };
    let file = |url: &str, media_type: &str, filename: Option<&str>| UiInputPart {
        part_type: "file",
        media_type: Some(media_type.to_owned()),
        filename: filename.map(str::to_owned),
        url: Some(url.to_owned()),
        ..UiInputPart::default()
    };
    let part = |part: &ContentPart| match part {
        ContentPart::Text { text: words, .. } => text(words.clone()),
        ContentPart::ImageUrl { image_url, .. } => file(&image_url.url, media_type(&image_url.url, ANY_IMAGE), None),
        ContentPart::File { file: stored } => match &stored.url {
            Some(url) => file(url, media_type(url, ANY_FILE), stored.display_name()),
            // A file of the attachment store has no address that a client could open.
            None => text(format!("[file {}]", stored.display_name().unwrap_or_default())),
        },
    };
    message.content.iter().map(part).collect()
}

/// The media type of an image, as far as its URL says.
pub(super) fn image_media_type(url: &str) -> &str {
    media_type(url, ANY_IMAGE)
}

fn media_type<'a>(url: &'a str, otherwise: &'a str) -> &'a str {
    let head = url.strip_prefix("data:").filter(|_| UrlKind::of(url) == UrlKind::Data);
    let written = head.and_then(|head| head.split([';', ',']).next()).filter(|written| written.contains('/'));
    written.unwrap_or(otherwise)
}

/// The metadata of the message. Clients merge what comes later into it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiMessageMetadata<'a> {
    pub(super) run_id: Option<&'a TaskId>,
    pub(super) thread_id: Option<&'a ThreadId>,
    /// The agent that answers.
    pub(super) agent: Option<&'a str>,
    pub(super) created_at: Option<Millis>,
    /// How the run ended, unless it completed.
    pub(super) status: Option<&'static str>,
    /// Which limit ended the run.
    pub(super) reason: Option<&'static str>,
    pub(super) error: Option<UiError<'a>>,
    pub(super) usage: Option<UiUsage>,
    pub(super) duration_ms: Option<u64>,
    pub(super) cost: Option<f64>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct UiError<'a> {
    pub(super) code: &'a str,
    pub(super) message: &'a str,
    pub(super) retryable: Option<bool>,
}

/// Tokens, by the SDK's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiUsage {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    reasoning_tokens: u64,
    cached_input_tokens: u64,
}

impl From<Usage> for UiUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            reasoning_tokens: usage.reasoning_tokens,
            cached_input_tokens: usage.cached_tokens,
        }
    }
}

impl UiUsage {
    /// The tokens of all tasks of the run so far.
    pub(super) fn of_run(run: &RunFold) -> Self {
        let mut total = Usage::default();
        run.tasks.iter().for_each(|task| total.add(task.usage));
        total.into()
    }
}
