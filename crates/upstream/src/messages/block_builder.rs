//! One content block of a stream, from its start to its end.

use crate::json;
use model::content::Annotation;
use model::json::JsonObject;
use serde_json::{Value, json};

/// A longer result of a hosted tool is not shown, only sent back: an event has to fit a record.
const VISIBLE_RESULT_BYTES_MAX: usize = 32 * 1024;
/// A longer quote is not shown, only sent back.
const QUOTE_BYTES_MAX: usize = 8 * 1024;
/// Fields that only the provider can read begin like this, and are not shown.
const ENCRYPTED_PREFIX: &str = "encrypted_";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentBlockKind {
    Text,
    Thinking,
    /// Encrypted: only the provider can read it.
    RedactedThinking,
    ToolUse,
    /// A call of a tool that the provider runs itself.
    HostedToolUse,
    HostedToolResult,
    Unknown,
}

impl ContentBlockKind {
    pub(super) fn from_json(block: &Value) -> Self {
        match json::str_field(block, "type").unwrap_or_default() {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "redacted_thinking" => Self::RedactedThinking,
            "tool_use" => Self::ToolUse,
            "server_tool_use" | "mcp_tool_use" => Self::HostedToolUse,
            kind if kind.ends_with("_tool_result") => Self::HostedToolResult,
            _ => Self::Unknown,
        }
    }
}

/// The slot of blocks that belong to no item.
pub(super) const NO_SLOT: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct ContentBlockBuilder {
    pub(super) index: Option<u32>,
    /// The item that the block belongs to.
    pub(super) slot: u32,
    pub(super) kind: ContentBlockKind,
    /// The block as it started; the deltas are merged into it at its end.
    pub(super) start_json: Value,
    /// The deltas so far: text, thinking, or the JSON of an input.
    pub(super) text: String,
    pub(super) citations: Vec<Value>,
    /// Length of the message before this block.
    pub(super) text_start_chars: u32,
}

impl ContentBlockBuilder {
    pub(super) fn new(index: Option<u32>, slot: u32, kind: ContentBlockKind, start_json: Value) -> Self {
        let citations = json::array_field(&start_json, "citations").to_vec();
        Self { index, slot, kind, start_json, text: String::new(), citations, text_start_chars: 0 }
    }

    /// The input of a call as JSON. If it was not streamed, the start of the block has it.
    pub(super) fn input_text(&self) -> String {
        if !self.text.trim().is_empty() {
            return self.text.clone();
        }
        let input = self.start_json.get("input").filter(|input| input.is_object());
        input.map_or_else(|| "{}".to_owned(), Value::to_string)
    }

    /// The complete block, ready to be sent back.
    pub(super) fn into_json(mut self) -> Value {
        let input =
            matches!(self.kind, ContentBlockKind::ToolUse | ContentBlockKind::HostedToolUse).then(|| self.input_text());
        let Some(fields) = self.start_json.as_object_mut() else { return self.start_json };
        match self.kind {
            ContentBlockKind::Text => {
                fields.insert("text".to_owned(), self.text.into());
                fields.remove("citations");
                if !self.citations.is_empty() {
                    fields.insert("citations".to_owned(), self.citations.into());
                }
            }
            ContentBlockKind::Thinking => {
                fields.insert("thinking".to_owned(), self.text.into());
            }
            ContentBlockKind::ToolUse | ContentBlockKind::HostedToolUse => {
                // Input that is not an object is the model's mistake; the item itself keeps its text.
                let input = input.and_then(|text| model::json::parse_lenient_json(&text).ok()).filter(Value::is_object);
                fields.insert("input".to_owned(), input.unwrap_or_else(|| json!({})));
            }
            ContentBlockKind::RedactedThinking | ContentBlockKind::HostedToolResult | ContentBlockKind::Unknown => {}
        }
        self.start_json
    }
}

/// `None` for unknown types of citations.
pub(super) fn parse_citation(citation: &Value, start_index: u32, end_index: u32) -> Option<Annotation> {
    let text = |key| json::str_field(citation, key).map(str::to_owned);
    let url = match json::str_field(citation, "type")? {
        "web_search_result_location" => text("url")?,
        "search_result_location" => text("source").filter(|source| source.starts_with("http"))?,
        "char_location" | "page_location" | "content_block_location" => {
            let (file_id, filename) = (text("file_id")?, text("document_title"));
            return Some(Annotation::FileCitation {
                file_id,
                filename,
                index: end_index,
                quote: text("cited_text").filter(|quote| quote.len() <= QUOTE_BYTES_MAX),
                start_index: Some(start_index),
                end_index: Some(end_index),
            });
        }
        _ => return None,
    };
    Some(Annotation::UrlCitation { url, title: text("title"), start_index, end_index })
}

/// What people see of a hosted call.
pub(super) fn hosted_action(call: &Value) -> JsonObject {
    ["server_name", "input"].into_iter().filter_map(|key| Some((key.to_owned(), call.get(key)?.clone()))).collect()
}

/// The outcome of a hosted call. The provider has no field for it.
pub(super) fn hosted_state(result: &Value) -> &'static str {
    let is_error = result.get("is_error") == Some(&Value::Bool(true));
    let kind = result.get("content").and_then(|content| json::str_field(content, "type")).unwrap_or_default();
    if is_error || kind.ends_with("_error") { "failed" } else { "completed" }
}

/// What people see of a hosted call's result.
pub(super) fn visible_result(result: &Value) -> Option<Value> {
    let mut content = result.get("content")?.clone();
    match &mut content {
        Value::Object(content) => content.retain(|key, _| !key.starts_with(ENCRYPTED_PREFIX)),
        Value::Array(list) => {
            for element in list.iter_mut().filter_map(Value::as_object_mut) {
                element.retain(|key, _| !key.starts_with(ENCRYPTED_PREFIX));
            }
        }
        _ => {}
    }
    Some(content).filter(|content| content.to_string().len() <= VISIBLE_RESULT_BYTES_MAX)
}
