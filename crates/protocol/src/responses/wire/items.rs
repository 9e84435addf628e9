//! Items, the parts of their content, and annotations.

use crate::computer_calls::{ComputerCallItem, ComputerCallOutputItem};
use crate::tool_searches::{ToolSearchCallItem, ToolSearchOutputItem};
use model::content::{Annotation, FileRef, ImageUrl};
use model::event::Question;
use model::json::JsonObject;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::borrow::Cow;

/// An item of a response's output, or of its input.
pub(crate) enum ItemObject<'a> {
    Reasoning(ReasoningItem<'a>),
    Message(MessageItem<'a>),
    FunctionCall(FunctionCallItem<'a>),
    FunctionCallOutput(FunctionCallOutputItem<'a>),
    McpCall(Box<McpCallItem<'a>>),
    McpApprovalRequest(McpApprovalRequestItem<'a>),
    McpApprovalResponse(McpApprovalResponseItem<'a>),
    ComputerCall(Box<ComputerCallItem<'a>>),
    ComputerCallOutput(Box<ComputerCallOutputItem<'a>>),
    ToolSearchCall(Box<ToolSearchCallItem<'a>>),
    ToolSearchOutput(Box<ToolSearchOutputItem<'a>>),
    /// A tool that the provider ran: most members are the provider's own.
    Hosted(JsonObject),
}

impl Serialize for ItemObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Reasoning(item) => item.serialize(serializer),
            Self::Message(item) => item.serialize(serializer),
            Self::FunctionCall(item) => item.serialize(serializer),
            Self::FunctionCallOutput(item) => item.serialize(serializer),
            Self::McpCall(item) => item.serialize(serializer),
            Self::McpApprovalRequest(item) => item.serialize(serializer),
            Self::McpApprovalResponse(item) => item.serialize(serializer),
            Self::ComputerCall(item) => item.serialize(serializer),
            Self::ComputerCallOutput(item) => item.serialize(serializer),
            Self::ToolSearchCall(item) => item.serialize(serializer),
            Self::ToolSearchOutput(item) => item.serialize(serializer),
            Self::Hosted(item) => item.serialize(serializer),
        }
    }
}

impl ItemObject<'_> {
    /// Marks an item that is still in progress as interrupted: a closed item needs an outcome.
    pub(crate) fn close(&mut self) {
        let status = match self {
            Self::Reasoning(item) => &mut item.status,
            Self::Message(item) => &mut item.status,
            Self::FunctionCall(item) => &mut item.status,
            Self::McpCall(item) => &mut item.status,
            Self::Hosted(item) => {
                if let Some(status) = item.get_mut("status").filter(|status| *status == "in_progress") {
                    *status = "incomplete".into();
                }
                return;
            }
            Self::FunctionCallOutput(_)
            | Self::McpApprovalRequest(_)
            | Self::McpApprovalResponse(_)
            | Self::ComputerCall(_)
            | Self::ComputerCallOutput(_)
            | Self::ToolSearchCall(_)
            | Self::ToolSearchOutput(_) => return,
        };
        if *status == "in_progress" {
            *status = "incomplete";
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ReasoningItem<'a> {
    pub(crate) id: &'a str,
    pub(crate) status: &'static str,
    pub(crate) summary: Vec<PartObject<'a>>,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

#[derive(Serialize)]
pub(crate) struct MessageItem<'a> {
    pub(crate) content: Vec<PartObject<'a>>,
    pub(crate) id: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<&'a str>,
    pub(crate) role: &'static str,
    pub(crate) status: &'static str,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

/// A call that the client answers.
#[derive(Serialize)]
pub(crate) struct FunctionCallItem<'a> {
    pub(crate) arguments: &'a str,
    pub(crate) call_id: &'a str,
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: &'a str,
    pub(crate) status: &'static str,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

#[derive(Serialize)]
pub(crate) struct FunctionCallOutputItem<'a> {
    pub(crate) call_id: &'a str,
    pub(crate) id: Cow<'a, str>,
    pub(crate) output: FunctionOutput<'a>,
    pub(crate) status: &'static str,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

pub(crate) enum FunctionOutput<'a> {
    Text(String),
    Parts(Vec<PartObject<'a>>),
}

impl Serialize for FunctionOutput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Parts(parts) => parts.serialize(serializer),
        }
    }
}

/// A call that the server answers.
#[derive(Serialize)]
pub(crate) struct McpCallItem<'a> {
    pub(crate) approval_request_id: Option<&'a str>,
    pub(crate) arguments: &'a str,
    pub(crate) error: Option<McpCallError<'a>>,
    pub(crate) id: String,
    pub(crate) name: &'a str,
    pub(crate) output: Option<&'a str>,
    pub(crate) server_label: &'a str,
    pub(crate) status: &'static str,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

#[derive(Serialize)]
pub(crate) struct McpCallError<'a> {
    content: [PartObject<'a>; 1],
    #[serde(rename = "type")]
    error_type: &'static str,
}

impl<'a> McpCallError<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let content = [PartObject::text("text", text)];
        Self { content, error_type: "mcp_tool_execution_error" }
    }
}

/// A call that a person is asked about.
#[derive(Serialize)]
pub(crate) struct McpApprovalRequestItem<'a> {
    pub(crate) arguments: String,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    /// What people should know before they decide. The protocol has no such member; clients ignore it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'a str>,
    pub(crate) server_label: &'a str,
    /// Beyond the original protocol: what the tool asks. `approve` with `arguments` answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<&'a Question>,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

#[derive(Serialize)]
pub(crate) struct McpApprovalResponseItem<'a> {
    pub(crate) approval_request_id: &'a str,
    pub(crate) approve: bool,
    /// Beyond the original protocol: the answer to a question, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    pub(crate) id: String,
    pub(crate) reason: Option<&'a str>,
    #[serde(rename = "type")]
    pub(crate) item_type: &'static str,
}

/// A part of an item's content, or of its reasoning summary. Every type of part has a few of these members.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(crate) struct PartObject<'a> {
    annotations: Option<Vec<AnnotationObject<'a>>>,
    detail: Option<&'static str>,
    file_data: Option<&'a str>,
    file_url: Option<&'a str>,
    filename: Option<&'a str>,
    image_url: Option<&'a str>,
    logprobs: Option<&'a [Value]>,
    refusal: Option<&'a str>,
    text: Option<&'a str>,
    #[serde(rename = "type")]
    part_type: &'static str,
}

impl<'a> PartObject<'a> {
    /// Its text, if it is one.
    pub(super) const fn text_of(&self) -> Option<&'a str> {
        self.text
    }

    pub(crate) fn summary_text(text: &'a str) -> Self {
        Self::text("summary_text", text)
    }

    pub(crate) fn input_text(text: &'a str) -> Self {
        Self::text("input_text", text)
    }

    pub(crate) fn output_text(text: &'a str, annotations: Vec<AnnotationObject<'a>>, logprobs: &'a [Value]) -> Self {
        let (annotations, logprobs) = (Some(annotations), Some(logprobs));
        Self { annotations, logprobs, ..Self::text("output_text", text) }
    }

    pub(crate) fn refusal(refusal: &'a str) -> Self {
        Self { refusal: Some(refusal), part_type: "refusal", ..Self::default() }
    }

    pub(crate) fn input_image(image: &'a ImageUrl) -> Self {
        let (detail, image_url) = (Some(image.detail_or_auto()), Some(image.url.as_str()));
        Self { detail, image_url, part_type: "input_image", ..Self::default() }
    }

    /// A file by its name, and by its address or content if it has any.
    pub(crate) fn input_file(file: &'a FileRef) -> Self {
        let url = file.url.as_deref();
        let is_inline = url.is_some_and(|url| url.starts_with("data:"));
        let (file_data, file_url) = if is_inline { (url, None) } else { (None, url) };
        Self { file_data, file_url, filename: file.display_name(), part_type: "input_file", ..Self::default() }
    }

    fn text(part_type: &'static str, text: &'a str) -> Self {
        Self { text: Some(text), part_type, ..Self::default() }
    }
}

/// The source of a range of a text.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(crate) struct AnnotationObject<'a> {
    container_id: Option<&'a str>,
    end_index: Option<u32>,
    file_id: Option<&'a str>,
    filename: Option<&'a str>,
    index: Option<u32>,
    /// The protocol has no such member; some providers of it send one.
    quote: Option<&'a str>,
    start_index: Option<u32>,
    title: Option<Cow<'a, str>>,
    #[serde(rename = "type")]
    annotation_type: &'static str,
    url: Option<Cow<'a, str>>,
}

impl<'a> AnnotationObject<'a> {
    pub(crate) fn new(annotation: &'a Annotation, references_url: &str) -> Self {
        let url_citation = |url: Cow<'a, str>, title: Cow<'a, str>, start_index: u32, end_index: u32| Self {
            end_index: Some(end_index),
            start_index: Some(start_index),
            title: Some(title),
            annotation_type: "url_citation",
            url: Some(url),
            ..Self::default()
        };
        match annotation {
            Annotation::ReferenceToBlock { reference_id, start_index, end_index } => {
                let url = format!("{references_url}{reference_id}");
                url_citation(url.into(), format!("[{reference_id}]").into(), *start_index, *end_index)
            }
            Annotation::UrlCitation { url, title, start_index, end_index } => {
                url_citation(url.into(), title.as_ref().unwrap_or(url).into(), *start_index, *end_index)
            }
            Annotation::FileCitation { file_id, filename, index, quote, start_index, end_index } => Self {
                end_index: *end_index,
                file_id: Some(file_id),
                filename: Some(filename.as_ref().unwrap_or(file_id)),
                index: Some(*index),
                quote: quote.as_deref(),
                start_index: *start_index,
                annotation_type: "file_citation",
                ..Self::default()
            },
            Annotation::ContainerFileCitation { container_id, file_id, filename, start_index, end_index } => Self {
                container_id: Some(container_id),
                end_index: Some(*end_index),
                file_id: Some(file_id),
                filename: Some(filename.as_ref().unwrap_or(file_id)),
                start_index: Some(*start_index),
                annotation_type: "container_file_citation",
                ..Self::default()
            },
            Annotation::FilePath { file_id, index } => {
                Self { file_id: Some(file_id), index: Some(*index), annotation_type: "file_path", ..Self::default() }
            }
        }
    }
}
