//! The body of an error response, by the protocol of the route. Handlers return a [`Problem`]; a middleware replaces its
//! body where clients expect OpenAI's, Anthropic's or AG-UI's.

use crate::problem::{Problem, ProblemMembers, ProblemSummary};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use model::error::ErrorCode;
use model::json::{ExactValue, to_exact_value};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// RFC 9457.
    Native,
    OpenAi,
    Anthropic,
    /// The AI SDK shows the text of a body as the message of its error.
    UiStream,
    AgUi,
}

/// Prefixes of routes with OpenAI's format.
const OPENAI_PATHS: [&str; 4] = ["/v1/responses", "/v1/conversations", "/v1/models", "/v1/chat/completions"];
const ANTHROPIC_PATHS: [&str; 1] = ["/v1/messages"];
const UI_STREAM_PATHS: [&str; 1] = ["/api/chat"];
const AG_UI_PATHS: [&str; 2] = ["/agui", "/copilotkit"];

impl ErrorFormat {
    pub(crate) fn for_path(path: &str) -> Self {
        let is_under =
            |prefix: &&str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if OPENAI_PATHS.iter().any(is_under) {
            Self::OpenAi
        } else if ANTHROPIC_PATHS.iter().any(is_under) {
            Self::Anthropic
        } else if UI_STREAM_PATHS.iter().any(is_under) {
            Self::UiStream
        } else if AG_UI_PATHS.iter().any(is_under) {
            Self::AgUi
        } else {
            Self::Native
        }
    }

    /// The status of an error in this format.
    pub(crate) fn http_status(self, status: StatusCode) -> StatusCode {
        match (self, status) {
            // Anthropic has a status of its own for an overloaded server.
            (Self::Anthropic, StatusCode::SERVICE_UNAVAILABLE) => StatusCode::from_u16(529).unwrap_or(status),
            // These clients expect 400 for an invalid body.
            (Self::OpenAi | Self::Anthropic | Self::UiStream | Self::AgUi, StatusCode::UNPROCESSABLE_ENTITY) => {
                StatusCode::BAD_REQUEST
            }
            _ => status,
        }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Native => "application/problem+json",
            Self::OpenAi | Self::Anthropic | Self::UiStream | Self::AgUi => "application/json",
        }
    }

    pub(crate) fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        match self {
            Self::Native => generator.subschema_for::<Problem>(),
            Self::OpenAi => generator.subschema_for::<OpenAiError>(),
            Self::Anthropic => generator.subschema_for::<AnthropicError>(),
            Self::UiStream => generator.subschema_for::<UiStreamError>(),
            Self::AgUi => generator.subschema_for::<AgUiError>(),
        }
    }

    /// Leaves responses alone that are not errors.
    pub(crate) fn format_error(self, mut response: Response, request_id: &HeaderValue) -> Response {
        let Some(problem) = response.extensions_mut().remove::<ProblemSummary>() else { return response };
        let members = response.extensions_mut().remove::<ProblemMembers>();
        let body = match self {
            Self::Native => return response,
            Self::OpenAi => openai_error(response.status(), &problem),
            Self::Anthropic => anthropic_error(response.status(), &problem, request_id),
            Self::UiStream => ui_stream_error(&problem),
            Self::AgUi => agui_error(&problem, members),
        };
        *response.status_mut() = self.http_status(response.status());
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type()));
        *response.body_mut() = Body::from(body);
        response
    }
}

/// An error of OpenAI's API.
#[derive(Serialize, JsonSchema)]
struct OpenAiError<'a> {
    error: OpenAiErrorDetails<'a>,
}

#[derive(Serialize, JsonSchema)]
struct OpenAiErrorDetails<'a> {
    code: &'a str,
    message: &'a str,
    /// The field of the request that is at fault.
    param: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'a str,
}

/// An error of Anthropic's API.
#[derive(Serialize, JsonSchema)]
struct AnthropicError<'a> {
    error: AnthropicErrorDetails<'a>,
    request_id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct AnthropicErrorDetails<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
}

/// An error of a chat.
#[derive(Serialize, JsonSchema)]
struct UiStreamError<'a> {
    code: &'a str,
    error: &'a str,
    /// The field of the request that is at fault.
    field: Option<&'a str>,
}

/// An error of AG-UI's front ends, which show `message` or `error`. It may have further members.
#[derive(Serialize, JsonSchema)]
struct AgUiError<'a> {
    error: &'a str,
    message: &'a str,
    code: &'a str,
}

fn agui_error(problem: &ProblemSummary, members: Option<ProblemMembers>) -> String {
    let code = problem.code.as_str();
    let error = to_exact_value(&AgUiError { error: code, message: &problem.detail, code });
    let ExactValue::Object(mut error) = error else { return String::new() };
    for (name, value) in members.into_iter().flat_map(|members| members.0) {
        error.entry(name).or_insert(value);
    }
    ExactValue::Object(error).to_string()
}

/// The message of a WebSocket that stands for an error response.
#[derive(Serialize)]
struct OpenAiErrorEnvelope<'a> {
    error: OpenAiErrorDetails<'a>,
    status: u16,
    #[serde(rename = "type")]
    kind: &'a str,
}

pub(crate) fn openai_error_envelope(problem: &ProblemSummary) -> String {
    let status = StatusCode::from_u16(problem.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let status = ErrorFormat::OpenAi.http_status(status);
    let envelope =
        OpenAiErrorEnvelope { error: openai_error_details(status, problem), status: status.as_u16(), kind: "error" };
    serde_json::to_string(&envelope).unwrap_or_default()
}

fn openai_error(status: StatusCode, problem: &ProblemSummary) -> String {
    let error = openai_error_details(ErrorFormat::OpenAi.http_status(status), problem);
    serde_json::to_string(&OpenAiError { error }).unwrap_or_default()
}

fn openai_error_details(status: StatusCode, problem: &ProblemSummary) -> OpenAiErrorDetails<'_> {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let code = match problem.code {
        ErrorCode::UnknownAgent => ErrorCode::ModelNotFound,
        code => code,
    };
    let ProblemSummary { detail, field, .. } = problem;
    OpenAiErrorDetails { code: code.as_str(), message: detail, param: field.as_deref(), kind }
}

fn anthropic_error(status: StatusCode, problem: &ProblemSummary, request_id: &HeaderValue) -> String {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    let error = AnthropicErrorDetails { message: &problem.detail, kind };
    let request_id = request_id.to_str().unwrap_or_default();
    serde_json::to_string(&AnthropicError { error, request_id, kind: "error" }).unwrap_or_default()
}

fn ui_stream_error(ProblemSummary { code, detail, field, .. }: &ProblemSummary) -> String {
    let error = UiStreamError { code: code.as_str(), error: detail, field: field.as_deref() };
    serde_json::to_string(&error).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    async fn error_response(path: &str) -> (StatusCode, Value) {
        let problem = Problem::invalid_field("input", "this is no list");
        let response =
            ErrorFormat::for_path(path).format_error(problem.into_response(), &HeaderValue::from_static("req_1"));
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn each_route_uses_the_error_format_of_its_protocol() {
        let (status, body) = error_response("/v1/responses/resp_1/cancel").await;
        let error = json!({ "message": "`input`: this is no list", "type": "invalid_request_error", "param": "input",
            "code": "invalid_body" });
        assert_eq!((status, body), (StatusCode::BAD_REQUEST, json!({ "error": error })));
        let (status, body) = error_response("/v1/messages").await;
        assert_eq!((status, &body["error"]["type"]), (StatusCode::BAD_REQUEST, &json!("invalid_request_error")));
        assert_eq!((&body["type"], &body["request_id"]), (&json!("error"), &json!("req_1")));
        let (status, body) = error_response("/agui/demo").await;
        let error = json!({ "error": "invalid_body", "message": "`input`: this is no list", "code": "invalid_body" });
        assert_eq!((status, body), (StatusCode::BAD_REQUEST, error));
        let (status, body) = error_response("/v1/tasks").await;
        assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_body")));
        assert_eq!(ErrorFormat::for_path("/v1/modelsx"), ErrorFormat::Native);
    }
}
