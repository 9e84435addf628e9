//! The events of an agent loop. Item events have the names that clients of such loops know, one of them misspelt.
//!
//! Members are declared in alphabetical order, which is the order that clients have always been sent.

use crate::computer_calls::{ComputerCallItem, Screenshot};
use crate::responses::{McpApprovalResponseItem, ResponsesEvent, SentItem};
use crate::tool_searches::ToolSearchOutputItem;
use model::event::Question;
use serde::{Serialize, Serializer};

/// One event of the stream.
#[derive(Serialize)]
pub(super) struct RunItemsEvent<T> {
    #[serde(flatten)]
    pub(super) body: T,
    #[serde(rename = "type")]
    pub(super) event_type: &'static str,
}

#[derive(Serialize)]
pub(super) struct RawResponseEvent<'a> {
    pub(super) data: &'a ResponsesEvent<'a>,
}

/// Another agent is active.
#[derive(Serialize)]
pub(super) struct AgentUpdatedEvent<'a> {
    pub(super) new_agent: AgentName<'a>,
}

#[derive(Serialize)]
pub(super) struct AgentName<'a> {
    pub(super) name: &'a str,
}

/// An item is complete.
#[derive(Serialize)]
pub(super) struct RunItemEvent<'a> {
    pub(super) item: RunItem<'a>,
    pub(super) name: &'static str,
}

#[derive(Serialize)]
pub(super) struct RunItem<'a> {
    pub(super) agent: AgentName<'a>,
    /// With a result: the arguments that ran, if a person changed those of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<&'a str>,
    pub(super) raw_item: RawItem<'a>,
    #[serde(rename = "type")]
    pub(super) item_type: &'static str,
}

/// An item in the shape of the Responses protocol.
pub(super) enum RawItem<'a> {
    /// As it was sent in the raw response.
    Response(&'a SentItem),
    ComputerCall(ComputerCallItem<'a>),
    FunctionCallOutput(CallOutputItem<'a, &'a str>),
    ComputerCallOutput(CallOutputItem<'a, Screenshot<'a>>),
    ApprovalResponse(McpApprovalResponseItem<'a>),
    ToolSearchOutput(ToolSearchOutputItem<'a>),
}

impl Serialize for RawItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Response(item) => item.serialize(serializer),
            Self::ComputerCall(item) => item.serialize(serializer),
            Self::FunctionCallOutput(item) => item.serialize(serializer),
            Self::ComputerCallOutput(item) => item.serialize(serializer),
            Self::ApprovalResponse(item) => item.serialize(serializer),
            Self::ToolSearchOutput(item) => item.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
pub(super) struct CallOutputItem<'a, T> {
    pub(super) call_id: &'a str,
    pub(super) output: T,
    #[serde(rename = "type")]
    pub(super) item_type: &'static str,
}

/// The run waits for approvals or for the client's tools.
#[derive(Serialize)]
pub(super) struct RunPausedEvent<'a> {
    pub(super) interruptions: Vec<Interruption<'a>>,
    pub(super) reason: &'static str,
}

#[derive(Serialize)]
pub(super) struct Interruption<'a> {
    /// The agent that made the call, which may be a sub-agent.
    pub(super) agent: AgentName<'a>,
    pub(super) arguments: String,
    pub(super) call_id: &'a str,
    pub(super) key: Option<&'a str>,
    /// What the tool asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<&'a Question>,
    /// The MCP server that has the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_label: Option<&'a str>,
    pub(super) task_id: &'a str,
    pub(super) tool_name: &'a str,
}

#[derive(Serialize)]
pub(super) struct RunEndedEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RunError<'a>>,
    /// Always empty.
    pub(super) interruptions: [(); 0],
    pub(super) reason: Option<&'a str>,
    pub(super) status: &'static str,
}

#[derive(Serialize)]
pub(super) struct RunError<'a> {
    pub(super) code: &'a str,
    pub(super) message: &'a str,
}
