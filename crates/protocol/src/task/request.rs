//! The bodies of requests. Unknown fields are errors: a misspelt option must not be ignored.
//!
//! Input parts have types of their own because a client may not set reference numbers or tags. The server checks a
//! request against the state of its run.

use super::client_tool::DeclaredClientTool;
use crate::client_input::InvalidField;
use crate::computer_calls::SAFETY_CHECKS_MAX;
use crate::record_frames::to_json_value;
use model::CallId;
use model::command::ClientToolResult;
use model::content::{ContentPart, FileRef, ImageDetail, ImageUrl};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{ApprovalDecision, ApprovalDecisionKind, CancelMode};
use model::id::is_valid_id;
use model::json::{ExactObject, ExactValue};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// `POST /v1/tasks`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewTask")]
pub struct CreateTaskRequest {
    /// An agent of the configuration, or `provider/model`.
    pub model: String,
    /// May be omitted to continue a run that was cancelled or reached a limit.
    #[serde(default)]
    pub input: TaskInput,
    /// The thread to continue; a new one by default.
    pub thread_id: Option<String>,
    /// The run to continue after, if it is not the last one of the thread: edit and regenerate.
    pub previous: Option<String>,
    /// The token of a share: starts a thread that continues the shared one.
    pub share: Option<String>,
    /// Respond with the events of the task. Not together with `wait`.
    #[serde(default)]
    pub stream: bool,
    /// Respond when the task has ended or paused.
    #[serde(default)]
    pub wait: bool,
    /// Tools that the client runs: the run pauses for their results.
    #[serde(default)]
    pub tools: Vec<DeclaredClientTool>,
    #[serde(default)]
    pub on_busy: OnBusyParam,
    #[serde(default)]
    pub on_disconnect: OnDisconnectParam,
    /// The client's own data, returned with the task.
    #[serde(default)]
    pub metadata: ExactObject,
}

/// What happens if the thread is busy: wait, refuse, cancel the active run, or add the input to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OnBusy")]
pub enum OnBusyParam {
    #[default]
    Enqueue,
    Reject,
    Interrupt,
    Steer,
}

/// What happens if the connection of this request breaks before its response is complete: the run continues, or it is
/// cancelled unless the client follows the task again within 10 seconds. `cancel` needs `stream` or `wait`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OnDisconnect")]
pub enum OnDisconnectParam {
    #[default]
    Continue,
    Cancel,
}

/// `POST /v1/tasks/{id}/input`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InputRequest")]
pub struct SendInputRequest {
    pub input: TaskInput,
}

/// `POST /v1/tasks/{id}/cancel`, and the same for agent runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    #[serde(default)]
    pub mode: CancelMode,
}

/// `POST /v1/tasks/{id}/approvals/{key}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApprovalRequest")]
pub struct DecideApprovalRequest {
    decision: ApprovalDecisionKind,
    /// The reason. The model reads that of a rejection.
    message: Option<String>,
    /// The new arguments, with `edit`; the answer to a question, with `approve`.
    arguments: Option<ExactObject>,
    /// Approve later calls of this tool in this run without asking.
    #[serde(default)]
    always: bool,
}

/// Which decisions take arguments.
pub const ARGUMENTS_MISPLACED: &str = "only `edit` takes arguments, and the `approve` that answers a question";

impl DecideApprovalRequest {
    pub fn into_decision(self) -> Result<ApprovalDecision, InvalidField> {
        let Self { decision: kind, message, arguments, always } = self;
        // Whether `approve` takes them depends on what is asked.
        let fits = match kind {
            ApprovalDecisionKind::Edit => arguments.is_some(),
            ApprovalDecisionKind::Approve => true,
            ApprovalDecisionKind::Reject => arguments.is_none(),
        };
        if !fits {
            return Err(InvalidField::new("arguments", ARGUMENTS_MISPLACED));
        }
        Ok(ApprovalDecision { kind, always, message, args: arguments.map(ExactValue::Object) })
    }
}

/// One element of the body of `POST /v1/tasks/{id}/tool_results`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolResultRequest")]
pub struct SubmittedToolResult {
    call_id: String,
    content: TaskInput,
    /// The tool failed. Without `content`, the model reads this.
    error: Option<String>,
    /// The `pending_safety_checks` of a computer call that somebody has acknowledged.
    #[serde(default)]
    acknowledged_safety_checks: Vec<SafetyCheck>,
}

/// A safety check of a computer call, as the call has it.
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct SafetyCheck {
    id: String,
    code: Option<String>,
    message: Option<String>,
}

/// Validates the results and converts them.
pub fn parse_tool_results(
    results: Vec<SubmittedToolResult>,
    parts_max: usize,
) -> Result<Vec<ClientToolResult>, InvalidField> {
    let mut call_ids = HashSet::new();
    let parse = |SubmittedToolResult { call_id, content, error, acknowledged_safety_checks: checks }| {
        if !is_valid_id(&call_id) {
            return Err(InvalidField::new("call_id", "must be the id of a call"));
        }
        if !call_ids.insert(call_id.clone()) {
            return Err(InvalidField::new("call_id", format!("duplicate `{call_id}`")));
        }
        let mut content = content.into_parts(parts_max)?;
        // The model must read something: at least the error.
        if let (Some(error), []) = (&error, content.as_slice()) {
            content.push(ContentPart::text(error));
        }
        if checks.len() > SAFETY_CHECKS_MAX {
            let reason = format!("{} checks; the maximum is {SAFETY_CHECKS_MAX}", checks.len());
            return Err(InvalidField::new("acknowledged_safety_checks", reason));
        }
        let acknowledged_checks = checks.iter().map(to_json_value).collect();
        let error = error.map(|error| ErrorInfo::new(ErrorCode::ClientError, error));
        Ok(ClientToolResult { call_id: CallId::from(call_id), content, error, acknowledged_checks })
    };
    results.into_iter().map(parse).collect()
}

/// User input: a text or a list of parts.
#[derive(Debug, Default)]
pub struct TaskInput(Vec<InputPart>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum InputPart {
    Text { text: String },
    ImageUrl { image_url: InputImage },
    File { file: InputFile },
}

/// A `bucket` and a `path` of an uploaded file, or a `url`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputFile {
    bucket: Option<String>,
    path: Option<String>,
    url: Option<String>,
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputImage {
    /// `https:`, `http:`, `/v1/blobs/…`, or `data:image/…;base64,…`, which is stored as a blob.
    url: String,
    #[schemars(extend("enum" = ["auto", "low", "high", "original", null]))]
    detail: Option<String>,
}

/// By hand, because the text and the list are alternatives without a tag.
impl JsonSchema for TaskInput {
    fn schema_name() -> Cow<'static, str> {
        "Input".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let parts = generator.subschema_for::<Vec<InputPart>>();
        json_schema!({ "description": "A text or a list of parts.", "anyOf": [{ "type": "string" }, parts] })
    }
}

impl TaskInput {
    /// Validates the parts and converts them.
    pub fn into_parts(self, parts_max: usize) -> Result<Vec<ContentPart>, InvalidField> {
        if self.0.len() > parts_max {
            return Err(InvalidField::new("input", format!("{} parts; the maximum is {parts_max}", self.0.len())));
        }
        self.0.into_iter().map(InputPart::into_part).collect()
    }
}

impl InputPart {
    fn into_part(self) -> Result<ContentPart, InvalidField> {
        match self {
            Self::Text { text } => Ok(ContentPart::text(text)),
            Self::ImageUrl { image_url: InputImage { url, detail } } => {
                let invalid = |error: &dyn fmt::Display| InvalidField::new("input", error.to_string());
                let image_url = ImageUrl::parse(url).map_err(|error| invalid(&error))?;
                let detail = detail.as_deref().map(ImageDetail::parse).transpose().map_err(|error| invalid(&error))?;
                Ok(ContentPart::ImageUrl { image_url: ImageUrl { detail: detail.flatten(), ..image_url }, id: None })
            }
            Self::File { file: InputFile { bucket, path, url, name } } => match (&bucket, &path, &url) {
                (Some(_), Some(_), None) | (None, None, Some(_)) => {
                    Ok(ContentPart::File { file: FileRef { bucket, path, url, name, size: None } })
                }
                _ => Err(InvalidField::new("input", "a file needs a `bucket` and a `path`, or a `url`")),
            },
        }
    }
}

impl<'de> Deserialize<'de> for TaskInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;
        impl<'de> Visitor<'de> for TextOrParts {
            type Value = TaskInput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<TaskInput, E> {
                // An empty text is no input, not a part with an empty text.
                let part = (!text.is_empty()).then(|| InputPart::Text { text: text.to_owned() });
                Ok(TaskInput(part.into_iter().collect()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TaskInput, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(TaskInput(parts))
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}
