//! Compaction: the request that replaces a conversation by a summary, and the window that it is answered with.
//!
//! A window is the user's messages and one `compaction` item. The client sends it back as the beginning of its next input.

use super::input_items::user_message_item;
use super::request::parse_input;
use super::wire::UsageObject;
use crate::client_input::{ClientInput, InvalidField};
use crate::record_frames::to_json_value;
use crate::request_fields::optional_str;
use model::content::ContentPart;
use model::json::JsonObject;
use model::usage::Usage;
use model::{Millis, TaskId};
use serde::Serialize;
use serde_json::Value;

const CACHE_KEY_CHARS_MAX: usize = 64;
const MILLIS_PER_SECOND: u64 = 1_000;

/// The body of `POST /v1/responses/compact`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactRequest {
    /// The agent, or `provider/model`.
    pub model: String,
    pub input: Vec<ClientInput>,
    pub previous_response_id: Option<String>,
    pub instructions: Option<String>,
}

/// Parses the body of a request. Unknown fields are ignored.
pub fn parse_compact_request(body: &JsonObject) -> Result<CompactRequest, InvalidField> {
    let model = optional_str(body, "model", "")?
        .ok_or_else(|| InvalidField::new("model", "the name of an agent, or `provider/model`, is required"))?;
    let cache_key = optional_str(body, "prompt_cache_key", "")?;
    if cache_key.is_some_and(|key| key.chars().count() > CACHE_KEY_CHARS_MAX) {
        let reason = format!("expected at most {CACHE_KEY_CHARS_MAX} characters");
        return Err(InvalidField::new("prompt_cache_key", reason));
    }
    let request = CompactRequest {
        model: model.to_owned(),
        input: parse_input(body)?,
        previous_response_id: optional_str(body, "previous_response_id", "")?.map(str::to_owned),
        instructions: optional_str(body, "instructions", "")?.filter(|text| !text.trim().is_empty()).map(str::to_owned),
    };
    if request.input.is_empty() && request.previous_response_id.is_none() {
        return Err(InvalidField::new("input", "`input` or `previous_response_id` is required"));
    }
    Ok(request)
}

/// A conversation that was replaced by its summary.
pub struct CompactedConversation<'a> {
    /// The run that wrote the summary.
    pub run: &'a TaskId,
    pub created_at: Millis,
    /// The user's messages that stay, oldest first.
    pub messages: &'a [Vec<ContentPart>],
    pub sealed_summary: &'a str,
    pub usage: Usage,
}

#[derive(Serialize)]
struct CompactionObject {
    created_at: u64,
    id: String,
    object: &'static str,
    output: Vec<Value>,
    usage: UsageObject,
}

#[derive(Serialize)]
struct CompactionItem<'a> {
    encrypted_content: &'a str,
    id: String,
    #[serde(rename = "type")]
    item_type: &'static str,
}

impl CompactedConversation<'_> {
    /// The answer to the request. Its ids name no run: neither the object nor its items can be continued by id.
    pub fn object(&self) -> Value {
        let suffix = self.run.run_suffix();
        let message = |(index, content): (usize, &Vec<ContentPart>)| {
            user_message_item(&format!("msg_cmp_{suffix}_{index}"), content)
        };
        let summary = CompactionItem {
            encrypted_content: self.sealed_summary,
            id: format!("cmp_s{suffix}"),
            item_type: "compaction",
        };
        let output = self.messages.iter().enumerate().map(message).chain([to_json_value(&summary)]).collect();
        to_json_value(&CompactionObject {
            created_at: self.created_at / MILLIS_PER_SECOND,
            id: format!("resp_cmp_{suffix}"),
            object: "response.compaction",
            output,
            usage: self.usage.into(),
        })
    }
}
