//! One content block on its way in: what it is, what it holds so far, and what it becomes when it is whole.

use crate::json;
use model::content::Annotation;
use model::json::JsonObject;
use serde_json::{Value, json};

/// A hosted tool's result beyond this is not shown, only given back: an event has to fit a record.
const VISIBLE_RESULT_BYTES_MAX: usize = 32 * 1024;
/// What only the provider can read begins with this, and is not shown.
const ENCRYPTED_PREFIX: &str = "encrypted_";

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentBlockKind {
    /// Words.
    Text,
    /// Thoughts.
    Thinking,
    /// Thoughts that only the provider can read.
    RedactedThinking,
    /// A call.
    ToolUse,
    /// A call that the provider runs itself.
    HostedToolUse,
    /// What came of it.
    HostedToolResult,
    /// Something that we do not know.
    Unknown,
}

impl ContentBlockKind {
    /// Looks at a block as it starts.
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

/// A block that has started and not ended.
#[derive(Debug)]
pub(super) struct ContentBlockBuilder {
    /// The provider's number for it.
    pub(super) index: Option<u32>,
    /// The item that it is, or is part of.
    pub(super) slot: u32,
    /// What it is.
    pub(super) kind: ContentBlockKind,
    /// The block as it started; what the deltas make of it is put in at its end.
    pub(super) start_json: Value,
    /// What the deltas said: words, thoughts, or the JSON text of an input.
    pub(super) text: String,
    /// What its words refer to, in the provider's shape.
    pub(super) citations: Vec<Value>,
    /// How many letters its message had before it.
    pub(super) text_start_chars: u32,
}

impl ContentBlockBuilder {
    /// A block as it starts.
    pub(super) fn new(index: Option<u32>, slot: u32, kind: ContentBlockKind, head: Value) -> Self {
        let citations = json::array_field(&head, "citations").to_vec();
        Self { index, slot, kind, start_json: head, text: String::new(), citations, text_start_chars: 0 }
    }

    /// The call's input as a JSON text. A call whose input was never streamed has it in its head.
    pub(super) fn input_text(&self) -> String {
        if !self.text.trim().is_empty() {
            return self.text.clone();
        }
        let whole = self.start_json.get("input").filter(|input| input.is_object());
        whole.map_or_else(|| "{}".to_owned(), Value::to_string)
    }

    /// The block as it would be sent back.
    pub(super) fn into_json(mut self) -> Value {
        let input =
            matches!(self.kind, ContentBlockKind::ToolUse | ContentBlockKind::HostedToolUse).then(|| self.input_text());
        let Some(head) = self.start_json.as_object_mut() else { return self.start_json };
        match self.kind {
            ContentBlockKind::Text => {
                head.insert("text".to_owned(), self.text.into());
                head.remove("citations");
                if !self.citations.is_empty() {
                    head.insert("citations".to_owned(), self.citations.into());
                }
            }
            ContentBlockKind::Thinking => {
                head.insert("thinking".to_owned(), self.text.into());
            }
            ContentBlockKind::ToolUse | ContentBlockKind::HostedToolUse => {
                // An input that is no object is the model's mistake; whoever sends the call back has its text.
                let input = input.and_then(|text| model::json::parse_lenient_json(&text).ok()).filter(Value::is_object);
                head.insert("input".to_owned(), input.unwrap_or_else(|| json!({})));
            }
            ContentBlockKind::RedactedThinking | ContentBlockKind::HostedToolResult | ContentBlockKind::Unknown => {}
        }
        self.start_json
    }
}

/// What a citation refers to, in our words; `None` for what we have no words for.
pub(super) fn parse_citation(citation: &Value, start_index: u32, end_index: u32) -> Option<Annotation> {
    let text = |key| json::str_field(citation, key).map(str::to_owned);
    let url = match json::str_field(citation, "type")? {
        "web_search_result_location" => text("url")?,
        "search_result_location" => text("source").filter(|source| source.starts_with("http"))?,
        "char_location" | "page_location" | "content_block_location" => {
            let (file_id, filename) = (text("file_id")?, text("document_title"));
            return Some(Annotation::FileCitation { file_id, filename, index: end_index });
        }
        _ => return None,
    };
    Some(Annotation::UrlCitation { url, title: text("title"), start_index, end_index })
}

/// What a hosted call does, as people are shown it.
pub(super) fn hosted_action(call: &Value) -> JsonObject {
    let shown = ["server_name", "input"].into_iter().filter_map(|key| Some((key.to_owned(), call.get(key)?.clone())));
    shown.collect()
}

/// How a hosted call ended, as people are shown it: the provider has no word for it.
pub(super) fn hosted_state(result: &Value) -> &'static str {
    let said_so = result.get("is_error") == Some(&Value::Bool(true));
    let kind = result.get("content").and_then(|content| json::str_field(content, "type")).unwrap_or_default();
    if said_so || kind.ends_with("_error") { "failed" } else { "completed" }
}

/// What a hosted call gave, as people are shown it: without what only the provider can read.
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
