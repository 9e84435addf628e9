//! The JSON of the Chat Completions protocol: chunks, the completion object, messages.
//!
//! Members are declared in alphabetical order, which is the order that clients have always been sent.

use model::usage::Usage;
use serde::Serialize;
use serde_with::skip_serializing_none;
use std::borrow::Cow;

/// A member that may be absent, `null`, or a value.
#[derive(Serialize)]
pub(super) struct Nullable<T>(pub(super) Option<T>);

/// A completion, or a chunk of one.
#[derive(Serialize)]
pub(super) struct Completion<'a> {
    pub(super) choices: &'a [Choice<'a>],
    pub(super) created: u64,
    pub(super) id: &'a str,
    pub(super) model: &'a str,
    pub(super) object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Nullable<UsageObject>>,
}

#[derive(Serialize)]
pub(super) struct Choice<'a> {
    /// Of a chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<MessageObject<'a>>,
    pub(super) finish_reason: Option<&'static str>,
    index: u32,
    /// Always `null`.
    logprobs: Option<()>,
    /// Of a completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<MessageObject<'a>>,
}

impl<'a> Choice<'a> {
    pub(super) const fn of_chunk(delta: MessageObject<'a>, finish_reason: Option<&'static str>) -> Self {
        Self { delta: Some(delta), finish_reason, index: 0, logprobs: None, message: None }
    }

    pub(super) const fn of_completion(message: MessageObject<'a>, finish_reason: Option<&'static str>) -> Self {
        Self { delta: None, finish_reason, index: 0, logprobs: None, message: Some(message) }
    }
}

/// A message, or a delta of one.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(super) struct MessageObject<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) annotations: Vec<AnnotationObject<'a>>,
    pub(super) content: Option<Nullable<Cow<'a, str>>>,
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    pub(super) refusal: Option<Nullable<Cow<'a, str>>>,
    pub(super) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<ToolCallObject<'a>>,
}

/// A call that the client answers, or a delta of one.
#[skip_serializing_none]
#[derive(Default, Serialize)]
pub(super) struct ToolCallObject<'a> {
    pub(super) function: FunctionObject<'a>,
    pub(super) id: Option<&'a str>,
    /// Of a chunk.
    pub(super) index: Option<usize>,
    #[serde(rename = "type")]
    pub(super) call_type: Option<&'static str>,
}

impl<'a> ToolCallObject<'a> {
    pub(super) fn new(id: &'a str, name: &'a str, arguments: &'a str) -> Self {
        let function = FunctionObject { arguments, name: Some(name) };
        Self { function, id: Some(id), index: None, call_type: Some("function") }
    }
}

#[derive(Default, Serialize)]
pub(super) struct FunctionObject<'a> {
    pub(super) arguments: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct AnnotationObject<'a> {
    #[serde(rename = "type")]
    pub(super) annotation_type: &'static str,
    pub(super) url_citation: UrlCitation<'a>,
}

#[derive(Serialize)]
pub(super) struct UrlCitation<'a> {
    pub(super) end_index: usize,
    pub(super) start_index: usize,
    pub(super) title: Cow<'a, str>,
    pub(super) url: Cow<'a, str>,
}

#[derive(Serialize)]
pub(super) struct ErrorFrame<'a> {
    pub(super) error: ErrorObject<'a>,
}

#[derive(Serialize)]
pub(super) struct ErrorObject<'a> {
    pub(super) code: &'static str,
    pub(super) message: &'a str,
    /// Always `null`: no parameter of the request is at fault.
    pub(super) param: Option<&'static str>,
    #[serde(rename = "type")]
    pub(super) error_type: &'static str,
}

#[derive(Serialize)]
pub(super) struct UsageObject {
    completion_tokens: u64,
    completion_tokens_details: CompletionTokensDetails,
    prompt_tokens: u64,
    prompt_tokens_details: PromptTokensDetails,
    total_tokens: u64,
}

#[derive(Serialize)]
struct CompletionTokensDetails {
    reasoning_tokens: u64,
}

#[derive(Serialize)]
struct PromptTokensDetails {
    cached_tokens: u64,
}

impl From<Usage> for UsageObject {
    fn from(usage: Usage) -> Self {
        Self {
            completion_tokens: usage.output_tokens,
            completion_tokens_details: CompletionTokensDetails { reasoning_tokens: usage.reasoning_tokens },
            prompt_tokens: usage.input_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens: usage.cached_tokens },
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        }
    }
}
