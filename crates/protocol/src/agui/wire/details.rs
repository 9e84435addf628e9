//! What AG-UI has no member for: `metadata.headwater` of events, messages and calls.

use crate::citations::TextCitation;
use model::Millis;
use model::error::ErrorInfo;
use model::event::ActionRequest;
use model::item::{ApprovalGate, CallKind, IncompleteReason, ItemStatus, ResultStatus};
use model::json::JsonObject;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_with::skip_serializing_none;

/// The metadata of an event, by the name of its author.
#[derive(Clone, Debug, Serialize)]
pub struct AgUiMetadata<'a> {
    pub headwater: AgUiDetails<'a>,
}

/// Our metadata. Each kind of event has some of the members.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiDetails<'a> {
    /// What executes a call.
    pub kind: Option<CallKind>,
    /// The tool's name for people.
    pub display_name: Option<&'a str>,
    pub gate: Option<ApprovalGate>,
    /// The MCP server that has the tool, and its name for the tool.
    pub server_label: Option<&'a str>,
    pub server_tool: Option<&'a str>,
    pub(crate) citations: Option<Vec<TextCitation<'a>>>,
    pub status: Option<AgUiStatus>,
    pub reason: Option<IncompleteReason>,
    pub error: Option<&'a ErrorInfo>,
    /// The arguments that the tool got, if a person changed them.
    pub arguments: Option<&'a str>,
    pub artifact: Option<&'a Value>,
    pub ui_hints: Option<&'a JsonObject>,
    /// The calls to review, in the shape of the native protocol.
    #[serde(rename = "action_requests")]
    pub action_requests: Option<&'a [ActionRequest]>,
    #[serde(rename = "expires_at")]
    pub expires_at: Option<Millis>,
    /// Where the user goes before answering a question.
    pub url: Option<&'a str>,
}

/// The status of an item that did not end as it should, or of a result.
#[derive(Clone, Copy, Debug)]
pub enum AgUiStatus {
    Item(ItemStatus),
    Result(ResultStatus),
}

impl Serialize for AgUiStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Item(status) => status.serialize(serializer),
            Self::Result(status) => status.serialize(serializer),
        }
    }
}

impl<'a> From<AgUiDetails<'a>> for AgUiMetadata<'a> {
    fn from(headwater: AgUiDetails<'a>) -> Self {
        Self { headwater }
    }
}
