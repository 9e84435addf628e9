//! What the native routes take and give, where it is not an object of `model`.
//!
//! A request's parts are not `model`'s: a client may not set what only the server knows (reference numbers, tags).

use crate::config::HttpLimits;
use crate::json_schema;
use crate::problem::Problem;
use model::content::{ContentPart, FileRef, ImageDetail, ImageUrl};
use model::event::{ApprovalDecisionKind, ClientTool};
use model::id::is_valid_id;
use model::limits::CostMicros;
use model::ports::{ApprovalRow, RunRow, ShareRow, ThreadRow};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt;

/// What a user says: a text, or parts.
#[derive(Debug, Default)]
pub(crate) struct TaskInput(Vec<InputPart>);

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
    /// The parts, where each is what it says.
    pub(crate) fn into_parts(self, limits: &HttpLimits) -> Result<Vec<ContentPart>, Problem> {
        let most = limits.input_parts_max;
        if self.0.len() > most {
            return Err(Problem::invalid_field("input", format!("{} parts; the maximum is {most}", self.0.len())));
        }
        self.0.into_iter().map(InputPart::into_part).collect()
    }
}

impl InputPart {
    fn into_part(self) -> Result<ContentPart, Problem> {
        match self {
            Self::Text { text } => Ok(ContentPart::text(text)),
            Self::ImageUrl { image_url: InputImage { url, detail } } => {
                let wrong = |error: &dyn fmt::Display| Problem::invalid_field("input", error);
                let image_url = ImageUrl::parse(url).map_err(|error| wrong(&error))?;
                let detail =
                    detail.as_deref().map(ImageDetail::parse).transpose().map_err(|error| wrong(&error))?.flatten();
                Ok(ContentPart::ImageUrl { image_url: ImageUrl { detail, ..image_url }, id: None })
            }
            Self::File { file: InputFile { bucket, path, url, name } } => match (&bucket, &path, &url) {
                (Some(_), Some(_), None) | (None, None, Some(_)) => {
                    Ok(ContentPart::File { file: FileRef { bucket, path, url, name, size: None } })
                }
                _ => Err(Problem::invalid_field("input", "a file needs a `bucket` and a `path`, or a `url`")),
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
                // An empty text says nothing, which is not the same as saying an empty text.
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

/// A tool that the caller will run itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredClientTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

/// The tools, where each has a name of its own and a schema.
pub(crate) fn parse_client_tools(
    declared: Vec<DeclaredClientTool>,
    limits: &HttpLimits,
) -> Result<Vec<ClientTool>, Problem> {
    let tool = |DeclaredClientTool { name, description, parameters }| {
        let parameters = if parameters.is_null() { json!({ "type": "object" }) } else { parameters };
        ClientTool { name, description, parameters }
    };
    check_client_tools(declared.into_iter().map(tool).collect(), limits)
}

/// The same for tools that were declared in another protocol's words.
pub(crate) fn check_client_tools(tools: Vec<ClientTool>, limits: &HttpLimits) -> Result<Vec<ClientTool>, Problem> {
    let most = limits.tools_max;
    if tools.len() > most {
        return Err(Problem::invalid_field("tools", format!("{} tools; the maximum is {most}", tools.len())));
    }
    let mut names = HashSet::new();
    for ClientTool { name, parameters, .. } in &tools {
        if !is_valid_id(name) {
            return Err(Problem::invalid_field("tools", "a name must have 1 to 64 letters, digits, `_` or `-`"));
        }
        if !names.insert(name) {
            return Err(Problem::invalid_field("tools", format!("duplicate name `{name}`")));
        }
        json_schema::check_object_schema(parameters)
            .map_err(|why| Problem::invalid_field("tools", format!("the `parameters` of `{name}`: {why}")))?;
    }
    Ok(tools)
}

/// A run in a listing. The whole object is one request away.
pub(crate) fn run_json(row: &RunRow) -> Value {
    json!({
        "task_id": row.id,
        "thread_id": row.thread,
        "agent": row.agent,
        "status": row.status,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    })
}

/// A thread.
pub(crate) fn thread_json(row: &ThreadRow) -> Value {
    json!({ "thread_id": row.id, "created_at": row.created_at, "updated_at": row.updated_at })
}

/// A share, without what opens it.
pub(crate) fn share_json(row: &ShareRow) -> Value {
    json!({
        "share_id": row.id,
        "thread_id": row.thread,
        "mode": if row.until_seq.is_some() { "frozen" } else { "live" },
        "until": row.until_seq,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    })
}

/// A question to a person, and the answer once there is one.
pub(crate) fn approval_json(row: &ApprovalRow) -> Value {
    let answer = row.answer.as_ref();
    let status = match answer.map(|answer| answer.decision.kind) {
        None => "pending",
        Some(ApprovalDecisionKind::Approve) => "approved",
        Some(ApprovalDecisionKind::Edit) => "edited",
        Some(ApprovalDecisionKind::Reject) => "rejected",
    };
    json!({
        "key": row.key,
        "thread_id": row.thread_id,
        "run_id": row.run_id,
        "task_id": row.task_id,
        "call_id": row.call_id,
        "name": row.action.name,
        "arguments": row.action.args,
        "requested_at": row.requested_at,
        "expires_at": row.expires_at,
        "status": status,
        "decision": answer.map(|answer| &answer.decision),
        "decided_by": answer.map(|answer| answer.by),
        "decided_at": answer.map(|answer| answer.at),
    })
}

/// Money as prices are written: millionths are ours alone.
#[expect(clippy::cast_precision_loss, reason = "exact up to nine thousand million, and what is compared is the amount")]
pub(crate) fn amount_as_f64(amount: CostMicros) -> f64 {
    amount.0 as f64 / 1_000_000.0
}
