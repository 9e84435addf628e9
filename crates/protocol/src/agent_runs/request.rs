//! The bodies of requests.

use crate::client_input::InvalidField;
use model::content::{ContentPart, FileRef};
use model::json::{ExactObject, JsonObject};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// `POST /api/v1/agent/runs`. Unknown members are ignored: front ends of this protocol send members of their own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "NewAgentRun")]
pub struct CreateAgentRunRequest {
    message: String,
    /// The thread to continue. A new name of the client's own starts a thread.
    pub thread_id: Option<String>,
    /// By default the agent of the thread's last run, else the one that no other agent calls.
    pub agent: Option<String>,
    // Maps, because serde accepts a list for a struct.
    #[serde(default)]
    #[schemars(with = "Vec<StoredFile>")]
    attachments: Vec<JsonObject>,
    #[serde(default)]
    pub metadata: ExactObject,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AttachmentRef")]
struct StoredFile {
    bucket: String,
    path: String,
}

impl CreateAgentRunRequest {
    /// Takes the message and its files out of the request: the text first, then the files.
    pub fn take_input(&mut self, parts_max: usize) -> Result<Vec<ContentPart>, InvalidField> {
        let (message, attachments) = (std::mem::take(&mut self.message), std::mem::take(&mut self.attachments));
        let max = parts_max.saturating_sub(1);
        let invalid = |reason: String| InvalidField::new("attachments", reason);
        if attachments.len() > max {
            return Err(invalid(format!("{} files; the maximum is {max}", attachments.len())));
        }
        let files = attachments.into_iter().map(|file| serde_json::from_value(Value::Object(file)));
        let files: Vec<StoredFile> = files.collect::<Result<_, _>>().map_err(|error| invalid(error.to_string()))?;
        if files.iter().any(|file| file.bucket.is_empty() || file.path.is_empty()) {
            return Err(invalid("a file needs a `bucket` and a `path`".to_owned()));
        }
        if message.is_empty() && files.is_empty() {
            return Err(InvalidField::new("message", "must not be empty"));
        }
        let text = Some(message).filter(|message| !message.is_empty()).map(ContentPart::text);
        let files = files.into_iter().map(|StoredFile { bucket, path }| ContentPart::File {
            file: FileRef { bucket: Some(bucket), path: Some(path), ..FileRef::default() },
        });
        Ok(text.into_iter().chain(files).collect())
    }
}
