//! Commands from clients to a thread. A command is first stored in the thread's inbox, then becomes an input of the run
//! loop; the append that answers it removes it from the inbox.

use crate::content::ContentPart;
use crate::context::ContextEntry;
use crate::error::ErrorInfo;
use crate::event::{ApprovalDecision, CancelMode, ClientIds, ClientTool, DisplayMode, Initiator};
use crate::history::{HistoryEntry, PriorHistory};
use crate::id::{ApprovalKey, CallId, TaskId};
use crate::json::{ExactObject, read_tag, unknown_tag};
use crate::model_settings::ModelSettings;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    Start(Box<StartCommand>),
    /// Cancel a run or one of its sub-agents.
    Cancel(CancelCommand),
    /// Send more input to a running run.
    Steer(SteerCommand),
    /// Answer pending requests of a paused run.
    Answer(AnswerCommand),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartCommand {
    /// Assigned when the request was accepted.
    pub task_id: TaskId,
    /// An agent's name, or `provider/model`.
    pub agent: String,
    pub input: Vec<ContentPart>,
    /// The run to continue; the last one by default. [`TaskId::no_run`] continues none.
    pub previous: Option<TaskId>,
    /// Tools that the client declares and runs itself.
    pub tools: Vec<ClientTool>,
    /// The client's own data, returned unchanged.
    pub metadata: ExactObject,
    pub display_mode: DisplayMode,
    /// The ids that a client of another protocol uses for the run.
    pub client: Option<ClientIds>,
    /// The thread that this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// History that the thread's log does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "before")]
    pub prior_history: Option<PriorHistory>,
    #[serde(default, skip_serializing_if = "ModelSettings::is_empty")]
    #[serde(rename = "wishes")]
    pub model_settings: ModelSettings,
    /// The parts of the request that the client's protocol returns in its responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "echo")]
    pub request_echo: Option<Value>,
    /// MCP servers for which the request brought the user's credential. The credentials themselves are stored nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_credentials: Vec<String>,
    /// The client's copy of the thread's state; `None` leaves the thread's as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextEntry>,
    /// The history as an input hook rewrote it. Never set by clients.
    #[serde(skip)]
    pub rewritten_history: Option<Vec<HistoryEntry>>,
    /// Set when the input hook failed: the run fails as soon as it starts.
    #[serde(skip)]
    pub hook_error: Option<ErrorInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelCommand {
    pub task_id: TaskId,
    pub mode: CancelMode,
    #[serde(default, skip_serializing_if = "CancelCause::is_user")]
    pub cause: CancelCause,
}

/// Why a run is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// Somebody cancels it.
    #[default]
    User,
    /// Its time is up. It comes through the inbox like a cancel, so that it has a place among the answers to the run.
    Deadline,
}

impl CancelCause {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    const fn is_user(&self) -> bool {
        matches!(self, Self::User)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteerCommand {
    pub task_id: TaskId,
    pub input: Vec<ContentPart>,
    /// The id of the new run that is started if the addressed run has ended in the meantime.
    #[serde(rename = "otherwise")]
    pub fallback_task_id: TaskId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerCommand {
    pub task_id: TaskId,
    #[serde(rename = "to")]
    pub body: AnswerBody,
    /// The parts of the request that the client's protocol returns in its responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "echo")]
    pub request_echo: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Box<RequestUpdate>>,
    /// The ids that a client of another protocol uses for the run from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<ClientIds>>,
}

/// What a request that resumes a run says about the rest of it, in protocols whose clients say it with every request.
/// Counts from the next model turn on; pending calls and decisions stay as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestUpdate {
    /// An agent's name, or `provider/model`.
    pub agent: String,
    /// Tools that the client declares and runs itself; `None` keeps those before.
    pub tools: Option<Vec<ClientTool>>,
    #[serde(default)]
    pub model_settings: ModelSettings,
    /// As in [`StartCommand::state`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// `None` keeps the context before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<ContextEntry>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerBody {
    Approval {
        key: ApprovalKey,
        decision: ApprovalDecision,
        /// A person, or the time-out.
        by: Initiator,
    },
    /// Results of tools that the client runs. All results of one request are accepted or none.
    ClientTools { results: Vec<ClientToolResult> },
}

/// The result of a tool that the client ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientToolResult {
    pub call_id: CallId,
    /// What the model reads.
    pub content: Vec<ContentPart>,
    pub error: Option<ErrorInfo>,
    /// The safety checks of a computer call that somebody has acknowledged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledged_checks: Vec<Value>,
}

/// Whether a client brings a state. Those that have none yet send `null` or an empty object, which must not delete the
/// thread's.
pub fn is_state_of_client(state: &Value) -> bool {
    !state.is_null() && state.as_object().is_none_or(|members| !members.is_empty())
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = Box::<RawValue>::deserialize(deserializer)?;
        let text = source.get();
        let command = read_tag(text.as_bytes()).and_then(|tag| match &*tag {
            "start" => serde_json::from_str(text).map(Self::Start),
            "cancel" => serde_json::from_str(text).map(Self::Cancel),
            "steer" => serde_json::from_str(text).map(Self::Steer),
            "answer" => serde_json::from_str(text).map(Self::Answer),
            tag => Err(unknown_tag(tag)),
        });
        command.map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for AnswerBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ApprovalFields {
            key: ApprovalKey,
            decision: ApprovalDecision,
            by: Initiator,
        }
        #[derive(Deserialize)]
        struct ClientToolsFields {
            results: Vec<ClientToolResult>,
        }
        let source = Box::<RawValue>::deserialize(deserializer)?;
        let text = source.get();
        let body = read_tag(text.as_bytes()).and_then(|tag| match &*tag {
            "approval" => {
                let ApprovalFields { key, decision, by } = serde_json::from_str(text)?;
                Ok(Self::Approval { key, decision, by })
            }
            "client_tools" => {
                let ClientToolsFields { results } = serde_json::from_str(text)?;
                Ok(Self::ClientTools { results })
            }
            tag => Err(unknown_tag(tag)),
        });
        body.map_err(D::Error::custom)
    }
}

impl Command {
    /// The run that the command addresses.
    pub fn task_id(&self) -> &TaskId {
        match self {
            Self::Start(start) => &start.task_id,
            Self::Cancel(cancel) => &cancel.task_id,
            Self::Steer(steer) => &steer.task_id,
            Self::Answer(answer) => &answer.task_id,
        }
    }
}
