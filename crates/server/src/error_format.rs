//! The body of an error response, by the protocol of the route. Handlers return a [`Problem`]; a middleware replaces its
//! body where clients expect OpenAI's or Anthropic's.
//!
//! [`Problem`]: crate::problem::Problem

use crate::problem::ProblemSummary;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use model::error::ErrorCode;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// RFC 9457.
    Native,
    OpenAi,
    Anthropic,
}

/// Prefixes of routes with OpenAI's format.
const OPENAI_PATHS: [&str; 4] = ["/v1/responses", "/v1/conversations", "/v1/models", "/v1/chat/completions"];
const ANTHROPIC_PATHS: [&str; 1] = ["/v1/messages"];

impl ErrorFormat {
    pub(crate) fn for_path(path: &str) -> Self {
        let is_under =
            |prefix: &&str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if OPENAI_PATHS.iter().any(is_under) {
            Self::OpenAi
        } else if ANTHROPIC_PATHS.iter().any(is_under) {
            Self::Anthropic
        } else {
            Self::Native
        }
    }

    /// Leaves responses alone that are not errors.
    pub(crate) fn format_error(self, mut response: Response, request_id: &HeaderValue) -> Response {
        let Some(problem) = response.extensions_mut().remove::<ProblemSummary>() else { return response };
        let body = match self {
            Self::Native => return response,
            Self::OpenAi => openai_error(response.status(), &problem),
            Self::Anthropic => anthropic_error(response.status(), &problem, request_id),
        };
        // Anthropic has a status of its own for an overloaded server.
        if self == Self::Anthropic && response.status() == StatusCode::SERVICE_UNAVAILABLE {
            *response.status_mut() = StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        }
        // These SDKs expect 400 for an invalid body.
        if response.status() == StatusCode::UNPROCESSABLE_ENTITY {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *response.body_mut() = Body::from(body.to_string());
        response
    }
}

fn openai_error(status: StatusCode, problem: &ProblemSummary) -> Value {
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
    json!({ "error": { "message": problem.detail, "type": kind, "param": problem.field, "code": code.as_str() } })
}

fn anthropic_error(status: StatusCode, problem: &ProblemSummary, request_id: &HeaderValue) -> Value {
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
    json!({
        "type": "error",
        "error": { "type": kind, "message": problem.detail },
        "request_id": request_id.to_str().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use axum::response::IntoResponse as _;
    use http_body_util::BodyExt as _;

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
        let (status, body) = error_response("/v1/tasks").await;
        assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_body")));
        assert_eq!(ErrorFormat::for_path("/v1/modelsx"), ErrorFormat::Native);
    }
}
