//! The JSON of the Messages protocol: events, the message object, content blocks.
//!
//! Members are declared in alphabetical order, which is the order that clients have always been sent.

use model::content::FileSource;
use model::json::ExactObject;
use model::usage::Usage;
use serde::{Serialize, Serializer};
use serde_with::skip_serializing_none;
use std::borrow::Cow;

/// The MCP server that the server's own tools belong to.
pub const SERVER_NAME: &str = "headwater";

/// One event of the stream. Every type of event has a few of these members.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(super) struct MessagesEvent<'a> {
    pub(super) content_block: Option<ContentBlock<'a>>,
    pub(super) delta: Option<MessagesDelta<'a>>,
    pub(super) error: Option<ErrorObject<'a>>,
    pub(super) index: Option<u32>,
    pub(super) message: Option<MessageObject<'a>>,
    #[serde(rename = "type")]
    pub(super) event_type: &'static str,
    pub(super) usage: Option<UsageObject>,
}

impl MessagesEvent<'_> {
    pub(super) fn new(event_type: &'static str) -> Self {
        Self { event_type, ..Self::default() }
    }
}

#[derive(Serialize)]
pub(super) struct MessageObject<'a> {
    pub(super) content: Vec<ContentBlock<'a>>,
    pub(super) id: String,
    pub(super) model: &'a str,
    pub(super) role: &'static str,
    pub(super) stop_reason: Option<&'static str>,
    /// Always `null`: providers do not report which one matched.
    pub(super) stop_sequence: Option<&'static str>,
    #[serde(rename = "type")]
    pub(super) object_type: &'static str,
    pub(super) usage: UsageObject,
}

/// A content block. Every type of block has a few of these members.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(super) struct ContentBlock<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    citations: Vec<Citation<'a>>,
    content: Option<[TextBlock; 1]>,
    id: Option<&'a str>,
    input: Option<ExactObject>,
    is_error: Option<bool>,
    name: Option<&'a str>,
    server_name: Option<&'a str>,
    signature: Option<&'a str>,
    text: Option<String>,
    thinking: Option<String>,
    tool_use_id: Option<&'a str>,
    #[serde(rename = "type")]
    block_type: &'static str,
}

impl<'a> ContentBlock<'a> {
    pub(super) fn thinking(thinking: String, signature: &'a str) -> Self {
        let (thinking, signature) = (Some(thinking), Some(signature));
        Self { thinking, signature, block_type: "thinking", ..Self::default() }
    }

    pub(super) fn text(text: String, citations: Vec<Citation<'a>>) -> Self {
        Self { text: Some(text), citations, block_type: "text", ..Self::default() }
    }

    /// A call that the client answers.
    pub(super) fn tool_use(id: &'a str, name: &'a str, input: ExactObject) -> Self {
        Self { id: Some(id), name: Some(name), input: Some(input), block_type: "tool_use", ..Self::default() }
    }

    /// A call that an MCP server answers.
    pub(super) fn mcp_tool_use(id: &'a str, name: &'a str, server_name: &'a str, input: ExactObject) -> Self {
        Self { server_name: Some(server_name), block_type: "mcp_tool_use", ..Self::tool_use(id, name, input) }
    }

    pub(super) fn mcp_tool_result(tool_use_id: &'a str, status: ToolResultStatus, text: String) -> Self {
        Self {
            content: Some([TextBlock { text, block_type: "text" }]),
            is_error: Some(status == ToolResultStatus::Failed),
            tool_use_id: Some(tool_use_id),
            block_type: "mcp_tool_result",
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolResultStatus {
    Succeeded,
    Failed,
}

#[derive(Serialize)]
struct TextBlock {
    text: String,
    #[serde(rename = "type")]
    block_type: &'static str,
}

#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(super) struct Citation<'a> {
    cited_text: &'a str,
    document_index: Option<usize>,
    document_title: Option<Option<&'a str>>,
    encrypted_index: Option<&'static str>,
    end_block_index: Option<u32>,
    file_id: Option<&'a str>,
    search_result_index: Option<u32>,
    source: Option<String>,
    start_block_index: Option<u32>,
    title: Option<Option<Cow<'a, str>>>,
    #[serde(rename = "type")]
    citation_type: &'static str,
    url: Option<&'a str>,
}

impl<'a> Citation<'a> {
    pub(super) fn web_page(url: &'a str, title: Option<&'a str>) -> Self {
        Self {
            encrypted_index: Some(""),
            title: Some(title.map(Cow::Borrowed)),
            citation_type: "web_search_result_location",
            url: Some(url),
            ..Self::default()
        }
    }

    /// One of the thread's own references, numbered from 1.
    pub(super) fn reference(number: u32, source: String) -> Self {
        Self {
            end_block_index: Some(1),
            search_result_index: Some(number.saturating_sub(1)),
            source: Some(source),
            start_block_index: Some(0),
            title: Some(Some(format!("[{number}]").into())),
            citation_type: "search_result_location",
            ..Self::default()
        }
    }

    /// A file that the provider stores. Which range of it is cited is not known: it is told as a document of one block.
    pub(super) fn file(file: &FileSource<'a>, document_index: usize) -> Self {
        Self {
            cited_text: file.quote.unwrap_or_default(),
            document_index: Some(document_index),
            document_title: Some(file.filename),
            end_block_index: Some(1),
            file_id: Some(file.file_id),
            start_block_index: Some(0),
            citation_type: "content_block_location",
            ..Self::default()
        }
    }
}

/// How a content block grows, or how the message ended.
pub(super) enum MessagesDelta<'a> {
    Block(BlockDelta<'a>),
    Message(MessageDelta),
}

impl Serialize for MessagesDelta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Block(delta) => delta.serialize(serializer),
            Self::Message(delta) => delta.serialize(serializer),
        }
    }
}

/// Every type of delta has one of these members.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(super) struct BlockDelta<'a> {
    citation: Option<Box<Citation<'a>>>,
    partial_json: Option<&'a str>,
    signature: Option<&'a str>,
    text: Option<&'a str>,
    thinking: Option<&'a str>,
    #[serde(rename = "type")]
    delta_type: &'static str,
}

impl<'a> BlockDelta<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self { text: Some(text), delta_type: "text_delta", ..Self::default() }
    }

    pub(super) fn thinking(thinking: &'a str) -> Self {
        Self { thinking: Some(thinking), delta_type: "thinking_delta", ..Self::default() }
    }

    pub(super) fn signature(signature: &'a str) -> Self {
        Self { signature: Some(signature), delta_type: "signature_delta", ..Self::default() }
    }

    pub(super) fn input_json(partial_json: &'a str) -> Self {
        Self { partial_json: Some(partial_json), delta_type: "input_json_delta", ..Self::default() }
    }

    pub(super) fn citation(citation: Citation<'a>) -> Self {
        Self { citation: Some(Box::new(citation)), delta_type: "citations_delta", ..Self::default() }
    }
}

#[derive(Serialize)]
pub(super) struct MessageDelta {
    pub(super) stop_reason: Option<&'static str>,
    /// Always `null`.
    pub(super) stop_sequence: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct ErrorObject<'a> {
    pub(super) message: &'a str,
    #[serde(rename = "type")]
    pub(super) error_type: &'static str,
}

/// Usage. This protocol does not count cached tokens as input tokens.
#[derive(Serialize)]
pub(super) struct UsageObject {
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    input_tokens: u64,
    output_tokens: u64,
    output_tokens_details: OutputTokensDetails,
}

#[derive(Serialize)]
struct OutputTokensDetails {
    thinking_tokens: u64,
}

impl From<Usage> for UsageObject {
    fn from(usage: Usage) -> Self {
        let cached = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
        Self {
            cache_creation_input_tokens: usage.cache_write_tokens,
            cache_read_input_tokens: usage.cached_tokens,
            input_tokens: usage.input_tokens.saturating_sub(cached),
            output_tokens: usage.output_tokens,
            output_tokens_details: OutputTokensDetails { thinking_tokens: usage.reasoning_tokens },
        }
    }
}
