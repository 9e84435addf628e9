//! The events of AG-UI: one struct of optional members in wire order, and the values of the members that have several
//! shapes. An absent member is left out: clients reject `null`.
//!
//! `messages` has the messages of snapshots, `details` the members of ours.

mod details;
mod messages;

pub use details::{AgUiDetails, AgUiMetadata, AgUiStatus};
pub(super) use messages::input_text;
pub use messages::{AgUiFunction, AgUiMessage, AgUiMessageContent, AgUiToolCall};

use model::Millis;
use model::error::ErrorInfo;
use model::usage::Usage;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use std::borrow::Cow;

/// The largest number that clients in JavaScript can count to.
const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// An event. Each type has some of the members.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiEvent<'a> {
    #[serde(rename = "type")]
    pub event_type: &'static str,
    /// In milliseconds.
    pub timestamp: Option<Millis>,
    pub thread_id: Option<&'a str>,
    pub run_id: Option<&'a str>,
    pub protocol_version: Option<&'static str>,
    pub parent_run_id: Option<&'a str>,
    pub input: Option<AgUiRunInput<'a>>,
    /// The sub-agent that it belongs to; `None` for the root.
    pub subagent_run_id: Option<&'a str>,
    pub parent_subagent_run_id: Option<&'a str>,
    pub message_id: Option<Cow<'a, str>>,
    pub tool_call_id: Option<&'a str>,
    pub tool_call_name: Option<&'a str>,
    pub parent_tool_call_id: Option<&'a str>,
    pub parent_message_id: Option<Cow<'a, str>>,
    pub step_name: Option<String>,
    pub role: Option<&'static str>,
    pub name: Option<&'a str>,
    pub delta: Option<AgUiDelta<'a>>,
    pub content: Option<AgUiContent<'a>>,
    pub activity_type: Option<&'a str>,
    pub patch: Option<&'a [Value]>,
    pub replace: Option<bool>,
    pub snapshot: Option<&'a Value>,
    pub messages: Option<Vec<Cow<'a, AgUiMessage>>>,
    pub event: Option<&'a Value>,
    pub source: Option<&'static str>,
    pub value: Option<AgUiValue<'a>>,
    pub message: Option<&'a str>,
    pub code: Option<&'a str>,
    pub result: Option<AgUiResult<'a>>,
    pub outcome: Option<AgUiOutcome<'a>>,
    pub usage: Option<Vec<AgUiTokenUsage>>,
    pub metadata: Option<AgUiMetadata<'a>>,
}

impl AgUiEvent<'_> {
    pub(crate) fn new(event_type: &'static str) -> Self {
        Self { event_type, ..Self::default() }
    }
}

/// The request of a run, of which only the new messages are shown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiRunInput<'a> {
    pub thread_id: &'a str,
    pub run_id: &'a str,
    pub messages: Vec<AgUiMessage>,
    /// Clients of 0.0.59 reject an input without these three.
    pub tools: [(); 0],
    pub context: [(); 0],
    pub forwarded_props: EmptyObject,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct EmptyObject {}

/// More of a text, or operations on the state.
#[derive(Clone, Copy, Debug)]
pub enum AgUiDelta<'a> {
    Text(&'a str),
    Patch(&'a [Value]),
}

impl Serialize for AgUiDelta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Patch(operations) => operations.serialize(serializer),
        }
    }
}

/// The content of a result or of an activity.
#[derive(Clone, Debug)]
pub enum AgUiContent<'a> {
    Text(String),
    Parts(Vec<AgUiPart<'a>>),
    Object(Cow<'a, Value>),
}

impl Serialize for AgUiContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Parts(parts) => parts.serialize(serializer),
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

/// A part of a message or of a result.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgUiPart<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: AgUiSource<'a>,
    },
    Document {
        source: AgUiSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<AgUiFileName<'a>>,
    },
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct AgUiFileName<'a> {
    pub filename: &'a str,
}

/// Where the bytes of a part are.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AgUiSource<'a> {
    Url { value: &'a str },
    Data { value: &'a str, mime_type: &'a str },
}

impl<'a> AgUiSource<'a> {
    /// A `data:` URL is split, because clients expect its parts.
    pub fn from_url(url: &'a str) -> Self {
        let data = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
        data.map_or(Self::Url { value: url }, |(mime_type, value)| Self::Data { value, mime_type })
    }
}

/// The value of a custom event.
#[derive(Clone, Debug)]
pub enum AgUiValue<'a> {
    /// What an application sent.
    Own(&'a Value),
    Json(Box<RawValue>),
}

impl<'a> AgUiValue<'a> {
    pub fn new(value: &impl Serialize) -> Self {
        Self::Json(to_raw_json(value))
    }
}

impl Serialize for AgUiValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Own(value) => value.serialize(serializer),
            Self::Json(text) => text.serialize(serializer),
        }
    }
}

/// A wire type as a JSON text, with numbers as they were written.
pub(super) fn to_raw_json(value: &impl Serialize) -> Box<RawValue> {
    // The keys are texts and the numbers finite, so this cannot fail.
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// How a run ended, where its outcome does not say it.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct AgUiResult<'a> {
    pub status: Option<&'static str>,
    /// The limit that ended it.
    pub reason: Option<&'a str>,
    pub error: Option<&'a ErrorInfo>,
}

/// How a run or a sub-agent ended.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AgUiOutcome<'a> {
    Success {
        /// The calls that the client is to run.
        #[serde(skip_serializing_if = "Option::is_none")]
        pending_tool_call_ids: Option<Vec<&'a str>>,
    },
    Interrupt {
        interrupts: Vec<AgUiInterrupt<'a>>,
    },
    Cancelled,
    /// A sub-agent continues when its run does.
    Suspended {
        #[serde(skip_serializing_if = "Option::is_none")]
        interrupt_ids: Option<Vec<&'a str>>,
    },
}

impl AgUiOutcome<'_> {
    pub const SUCCESS: Self = Self::Success { pending_tool_call_ids: None };
}

/// A decision or an answer that a run waits for.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiInterrupt<'a> {
    pub id: &'a str,
    pub reason: &'static str,
    pub message: String,
    pub tool_call_id: &'a str,
    pub response_schema: Option<Cow<'a, Value>>,
    /// Clients of 0.0.59 get none.
    pub expires_at: Option<String>,
    pub subagent_run_id: Option<&'a str>,
    pub metadata: AgUiMetadata<'a>,
}

/// The tokens of one model.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiTokenUsage {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub total_tokens: u64,
    pub reasoning_tokens: u64,
    pub cached_input_tokens: u64,
    pub cache_write_input_tokens: u64,
}

impl AgUiTokenUsage {
    pub fn new(model: &str, usage: Usage) -> Self {
        let count = |tokens: u64| tokens.min(SAFE_INTEGER_MAX);
        Self {
            model: model.to_owned(),
            input_tokens: count(usage.input_tokens),
            output_tokens: count(usage.output_tokens),
            total_tokens: count(usage.input_tokens.saturating_add(usage.output_tokens)),
            reasoning_tokens: count(usage.reasoning_tokens),
            cached_input_tokens: count(usage.cached_tokens),
            cache_write_input_tokens: count(usage.cache_write_tokens),
        }
    }
}
