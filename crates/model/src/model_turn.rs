//! What a model turn is given and what comes of it, whoever the provider is.
//!
//! A provider's own events are turned into these by its ingest (`protocol`), pure and lossless: what has no place here
//! is [`ModelDelta::Unknown`]. `slot` is the provider's own number for an item of this turn; the run loop maps slots to
//! items, so deltas of several items may interleave and arrive in any order.

use crate::content::Annotation;
use crate::definition::ToolSpec;
use crate::error::ErrorInfo;
use crate::event::StopReason;
use crate::history::HistoryEntry;
use crate::history::RawItem;
use crate::id::{TaskId, ThreadId, UserId};
use crate::json::JsonObject;
use crate::model_settings::ModelSettings;
use crate::usage::Usage;
use serde_json::Value;
use std::sync::Arc;

/// One model turn.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// Whose turn it is.
    pub user: UserId,
    /// In which thread.
    pub thread: ThreadId,
    /// For which task.
    pub task: TaskId,
    /// Which turn of that task, from 1.
    pub step: u32,
    /// Which try of it, from 1.
    pub attempt: u32,
    /// `provider/model`.
    pub model: String,
    /// The operator's words, before everything.
    pub instructions: String,
    /// What was said and done so far.
    pub history: Arc<[HistoryEntry]>,
    /// What the model may ask for.
    pub tools: Arc<[ToolSpec]>,
    /// The operator's wishes, in the provider's own words (`temperature`, `reasoning`, …): they go into its request.
    pub provider_options: Arc<JsonObject>,
    /// The caller's wishes, in words that every provider has. The operator's win.
    pub model_settings: Arc<ModelSettings>,
}

/// What a provider sends back. The last one is `End` or `Failed`; a stream that ends without either has failed.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The turn goes on.
    Delta(ModelDelta),
    /// The turn ended by itself.
    End(ModelTurnEnd),
    /// The provider failed.
    Failed(ModelFailure),
}

/// One step of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelDelta {
    /// A new item.
    Started {
        /// The provider's number for it.
        slot: u32,
        /// What it is.
        item: ModelItemKind,
    },
    /// More of a reasoning summary.
    Reasoning {
        /// The item.
        slot: u32,
        /// The summary part, from 0.
        part: u32,
        /// The piece.
        text: String,
    },
    /// More of a message.
    Text {
        /// The item.
        slot: u32,
        /// The content part, from 0.
        part: u32,
        /// The piece.
        text: String,
        /// Probabilities, when they were asked for.
        logprobs: Option<Value>,
    },
    /// More of a message that declines.
    Refusal {
        /// The item.
        slot: u32,
        /// The content part, from 0.
        part: u32,
        /// The piece.
        text: String,
    },
    /// A place in a message refers to something.
    Annotation {
        /// The item.
        slot: u32,
        /// The content part, from 0.
        part: u32,
        /// What refers to what.
        annotation: Annotation,
    },
    /// More of a call's arguments.
    Arguments {
        /// The item.
        slot: u32,
        /// The piece.
        text: String,
    },
    /// A picture, sharper each time; the last has no `partial`.
    Image {
        /// The item.
        slot: u32,
        /// The block, from 0.
        part: u32,
        /// Which partial picture, from 0; `None` for the picture itself.
        partial: Option<u32>,
        /// Where it is.
        url: String,
    },
    /// A tool that the provider runs itself moved on.
    Hosted {
        /// The item.
        slot: u32,
        /// The provider's word for where it is.
        state: String,
        /// What it does, in the provider's shape.
        action: Option<Value>,
    },
    /// The item is whole. Items still open at [`ModelEvent::End`] are whole, too, unless the turn was limited.
    Done {
        /// The item.
        slot: u32,
        /// The item as it came, to be given back to the same provider.
        raw: Option<RawItem>,
    },
    /// Tokens so far.
    Usage(Usage),
    /// Something that we do not know, as it came.
    Unknown(Value),
}

/// What a new item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelItemKind {
    /// Thoughts.
    Reasoning,
    /// Words.
    Message {
        /// The provider's word for what kind of message it is.
        phase: Option<String>,
    },
    /// A call.
    ToolCall {
        /// The tool.
        name: String,
        /// The provider's name for the call.
        provider_call_id: Option<String>,
    },
    /// A tool that the provider runs itself.
    HostedCall {
        /// The provider's name for the tool.
        name: String,
    },
}

/// A turn ended by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTurnEnd {
    /// The provider's reason, in our words: `stop`, `tool_calls`, `max_tokens` or `content_filter`.
    pub stop_reason: StopReason,
    /// Tokens of the turn.
    pub usage: Usage,
    /// The model that answered, where the provider says.
    pub model: Option<String>,
    /// The provider's service tier.
    pub service_tier: Option<String>,
}

/// A turn failed.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailure {
    /// What went wrong, and whether a retry may help.
    pub error: ErrorInfo,
    /// The provider asks to wait this long.
    pub retry_after_ms: Option<u64>,
}
