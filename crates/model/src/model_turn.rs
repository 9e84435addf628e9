//! A model turn: its request and its events, the same for all providers.
//!
//! The provider's ingest (`upstream`) translates its events into these, pure and lossless: what has no equivalent
//! becomes [`ModelDelta::Unknown`]. `slot` is the provider's number for an item of the turn. The run loop maps slots to
//! items, so deltas of several items may interleave in any order.

use crate::content::Annotation;
use crate::definition::ToolSpec;
use crate::error::ErrorInfo;
use crate::event::StopReason;
use crate::history::{RawItem, SharedHistory};
use crate::id::{TaskId, ThreadId, UserId};
use crate::json::JsonObject;
use crate::model_settings::ModelSettings;
use crate::usage::Usage;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    pub user: UserId,
    pub thread: ThreadId,
    pub task: TaskId,
    /// Counted from 1.
    pub step: u32,
    /// Counted from 1.
    pub attempt: u32,
    /// `provider/model`.
    pub model: String,
    /// The operator's instructions.
    pub instructions: String,
    pub history: SharedHistory,
    pub tools: Arc<[ToolSpec]>,
    /// The tools among them that the provider's own search is to load.
    pub deferred_tools: Arc<BTreeSet<String>>,
    /// The operator's provider-specific options, merged into the upstream request.
    pub provider_options: Arc<JsonObject>,
    /// The client's settings. The operator's options take precedence.
    pub model_settings: Arc<ModelSettings>,
}

/// An event of a provider's stream. The last one is `End` or `Failed`; a stream that ends without either has failed.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    Delta(ModelDelta),
    End(ModelTurnEnd),
    Failed(ModelFailure),
}

/// A change within a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelDelta {
    Started {
        slot: u32,
        item: ModelItemKind,
    },
    /// More of a reasoning summary.
    Reasoning {
        slot: u32,
        /// Index of the summary part.
        part: u32,
        text: String,
    },
    /// More text of a message.
    Text {
        slot: u32,
        /// Index of the content part.
        part: u32,
        text: String,
        /// Log probabilities, when the client requested them.
        logprobs: Option<Value>,
    },
    /// More text of a refusal.
    Refusal {
        slot: u32,
        /// Index of the content part.
        part: u32,
        text: String,
    },
    Annotation {
        slot: u32,
        /// Index of the content part.
        part: u32,
        annotation: Annotation,
    },
    /// More of a call's arguments.
    Arguments {
        slot: u32,
        text: String,
    },
    /// An image; previews carry `partial`, the final image does not.
    Image {
        slot: u32,
        /// Index of the block.
        part: u32,
        /// Number of the preview, counted from 0.
        partial: Option<u32>,
        url: String,
    },
    /// A tool that the provider runs changed its state.
    Hosted {
        slot: u32,
        /// The provider's word for the state.
        state: String,
        /// What the tool does, in the provider's shape.
        action: Option<Value>,
    },
    /// The item is complete. So are items that are still open at [`ModelEvent::End`], unless the turn was limited.
    Done {
        slot: u32,
        /// The upstream item, to be sent back to the same provider.
        raw: Option<RawItem>,
    },
    /// Tokens of the turn so far.
    Usage(Usage),
    /// An unrecognised upstream event.
    Unknown(Value),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelItemKind {
    Reasoning,
    Message {
        /// The provider's classification of the message.
        phase: Option<String>,
    },
    ToolCall {
        name: String,
        provider_call_id: Option<String>,
    },
    /// Actions on a computer, which a tool of that name or the client performs.
    ComputerCall {
        provider_call_id: Option<String>,
    },
    /// The provider asks whether it may call a tool of an MCP server.
    HostedApproval {
        name: String,
        server_label: String,
        provider_call_id: Option<String>,
    },
    /// A tool that the provider runs.
    HostedCall {
        name: String,
        /// What the tool does, as far as its announcement says.
        action: Option<Value>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelTurnEnd {
    /// `stop`, `tool_calls`, `max_tokens` or `content_filter`.
    pub stop_reason: StopReason,
    pub usage: Usage,
    /// As reported by the provider.
    pub model: Option<String>,
    /// As reported by the provider.
    pub service_tier: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailure {
    pub error: ErrorInfo,
    /// From the provider's `Retry-After`.
    pub retry_after_ms: Option<u64>,
}
