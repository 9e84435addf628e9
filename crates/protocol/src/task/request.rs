//! The bodies of requests. Unknown fields are errors: a misspelt option must not be ignored.
//!
//! Input parts have types of their own because a client may not set reference numbers or tags. The server checks a
//! request against the state of its run.

use crate::client_input::InvalidField;
use crate::request_fields::any_object_schema;
use model::CallId;
use model::command::ClientToolResult;
use model::content::{ContentPart, FileRef, ImageDetail, ImageUrl};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{ApprovalDecision, ApprovalDecisionKind, CancelMode, ClientTool};
use model::id::is_valid_id;
use model::json::JsonObject;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;

/// `POST /v1/tasks`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTaskRequest {
    pub model: String,
    #[serde(default)]
    pub input: TaskInput,
    pub thread_id: Option<String>,
    pub previous: Option<String>,
    /// Token of a share that the new thread continues.
    pub share: Option<String>,
    #[serde(default)]
    pub stream: bool,
    #[serde(default)]
    pub wait: bool,
    #[serde(default)]
    pub tools: Vec<DeclaredClientTool>,
    #[serde(default)]
    pub on_busy: OnBusyParam,
    #[serde(default)]
    pub metadata: JsonObject,
}

/// What to do if the thread has an active run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusyParam {
    #[default]
    Enqueue,
    Reject,
    Interrupt,
    Steer,
}

/// A tool that the client runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredClientTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

impl From<DeclaredClientTool> for ClientTool {
    fn from(DeclaredClientTool { name, description, parameters }: DeclaredClientTool) -> Self {
        let parameters = if parameters.is_null() { any_object_schema() } else { parameters };
        Self { name, description, parameters }
    }
}

/// `POST /v1/tasks/{id}/input`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendInputRequest {
    pub input: TaskInput,
}

/// `POST /v1/tasks/{id}/cancel`, and the same for agent runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    #[serde(default)]
    pub mode: CancelMode,
}

/// `POST /v1/tasks/{id}/approvals/{key}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecideApprovalRequest {
    decision: ApprovalDecisionKind,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    arguments: Option<JsonObject>,
    #[serde(default)]
    always: bool,
}

impl DecideApprovalRequest {
    pub fn into_decision(self) -> Result<ApprovalDecision, InvalidField> {
        let Self { decision: kind, message, arguments, always } = self;
        if (kind == ApprovalDecisionKind::Edit) != arguments.is_some() {
            return Err(InvalidField::new("arguments", "only the decision `edit` takes arguments"));
        }
        Ok(ApprovalDecision { kind, always, message, args: arguments.map(Value::Object) })
    }
}

/// One element of the body of `POST /v1/tasks/{id}/tool_results`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmittedToolResult {
    call_id: String,
    content: TaskInput,
    #[serde(default)]
    error: Option<String>,
}

/// Validates the results and converts them.
pub fn parse_tool_results(
    results: Vec<SubmittedToolResult>,
    parts_max: usize,
) -> Result<Vec<ClientToolResult>, InvalidField> {
    let mut call_ids = HashSet::new();
    let parse = |SubmittedToolResult { call_id, content, error }| {
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
        let error = error.map(|error| ErrorInfo::new(ErrorCode::ClientError, error));
        Ok(ClientToolResult { call_id: CallId::from(call_id), content, error })
    };
    results.into_iter().map(parse).collect()
}

/// User input: a text or a list of parts.
#[derive(Debug, Default)]
pub struct TaskInput(Vec<InputPart>);

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum InputPart {
    Text { text: String },
    ImageUrl { image_url: InputImage },
    File { file: InputFile },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputFile {
    #[serde(default)]
    bucket: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputImage {
    url: String,
    #[serde(default)]
    detail: Option<String>,
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
