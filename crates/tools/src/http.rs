//! A tool behind a URL: one request, whose response is read as it arrives.

use crate::arguments::RawArguments;
use crate::byte_source::{ByteSource, ToolResponse};
use crate::context::ToolContext;
use crate::output_parser::ToolOutputParser;
use crate::question_line::answer_header;
use crate::secrets::CallSecrets;
use crate::shortage::{StartBackoff, has_shortage};
use crate::truncate;
use crate::url_template::{self, FilledUrl};
use bytes::Bytes;
use model::definition::HttpTool;
use model::error::{ErrorCode, ErrorInfo};
use model::tool::ToolRequest;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request, Response, Url};
use std::error::Error;
use std::sync::Arc;

/// How much of an error response an error message quotes.
const ERROR_BODY_CHARS_MAX: usize = 500;
/// How much of it is read: more than is quoted, so that a secret in it is found whole.
const ERROR_BODY_BYTES_MAX: usize = 16 * 1024;

/// Responses of these types have one event per line.
const JSON_LINES_MEDIA_TYPES: [&str; 5] =
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines"];

/// Responses of this type have one event per server-sent event.
const EVENT_STREAM_MEDIA_TYPE: &str = "text/event-stream";

/// How a response has events, if it has any.
enum BodyFormat {
    JsonLines,
    ServerSentEvents,
    Whole,
}

pub(crate) async fn start_http_call(
    context: &ToolContext,
    tool: &HttpTool,
    call: &ToolRequest,
) -> Result<ToolResponse<HttpSource>, ErrorInfo> {
    let mut secrets = CallSecrets::default();
    let mut request = build_request(tool, call)?;
    for (name, value) in &tool.headers {
        let value = secrets.resolve(value, &context.env).await?;
        set_header(request.headers_mut(), name, &value)?;
    }
    // These come last, so that no definition can impersonate another user or run.
    for (name, value) in [
        ("idempotency-key", call.call_id.as_str()),
        ("headwater-user", call.user.as_str()),
        ("headwater-thread", call.thread.as_str()),
        ("headwater-run", call.run.as_str()),
        ("headwater-call", call.call_id.as_str()),
    ] {
        set_header(request.headers_mut(), name, value)?;
    }
    if let Some(answers) = &call.answers {
        set_header(request.headers_mut(), "headwater-answer", &answer_header(answers)?)?;
    }
    let source = send_request(&context.http, request, &secrets).await?;
    let new_parser = match source.body_format() {
        BodyFormat::JsonLines => ToolOutputParser::new,
        BodyFormat::ServerSentEvents => ToolOutputParser::server_sent_events,
        BodyFormat::Whole => ToolOutputParser::result_only,
    };
    let parser = new_parser(call.output_bytes_max, Arc::new(secrets)).with_result_pointer(tool.result.clone());
    Ok(ToolResponse { source, parser })
}

/// Declared arguments that the URL does not use go into the query of a method without a body, else into the body. What
/// the schema does not declare is not sent: no rule or person has looked at it.
fn build_request(tool: &HttpTool, call: &ToolRequest) -> Result<Request, ErrorInfo> {
    let mut arguments = RawArguments::parse(&call.arguments)?;
    let method = Method::from_bytes(tool.method.to_ascii_uppercase().as_bytes())
        .map_err(|_| invalid_tool_error(format!("`{}` is not an HTTP method", tool.method)))?;
    let FilledUrl { mut url, used_arguments } = url_template::fill_url(&tool.url, &arguments)?;
    let body = match (&tool.body, &method) {
        (Some(template), _) => Some(arguments.fill_template(template)),
        (None, &Method::GET | &Method::HEAD | &Method::DELETE) => {
            // A second value of a name would override the operator's on most servers.
            let fixed: Vec<String> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
            arguments.retain(|name| {
                call.parameters.declares(name) && !used_arguments.iter().chain(&fixed).any(|used| used == name)
            });
            let pairs = arguments.query_pairs();
            if !pairs.is_empty() {
                url.query_pairs_mut().extend_pairs(pairs);
            }
            None
        }
        (None, _) => {
            arguments.retain(|name| call.parameters.declares(name) && !used_arguments.iter().any(|used| used == name));
            Some(arguments.to_json())
        }
    };
    let mut request = Request::new(method, url);
    if let Some(body) = body {
        set_json_body(&mut request, body);
    }
    Ok(request)
}

pub(crate) fn set_json_body(request: &mut Request, body: impl Into<reqwest::Body>) {
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.body_mut() = Some(body.into());
}

/// The value may be a secret: no error quotes it, and `Debug` of the request hides it.
pub(crate) fn set_header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), ErrorInfo> {
    let invalid = || invalid_tool_error(format!("the header `{name}` has an invalid name or value"));
    let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
    value.set_sensitive(true);
    headers.insert(key, value);
    Ok(())
}

/// A status other than 2xx is an error.
pub(crate) async fn send_request(
    client: &Client,
    request: Request,
    secrets: &CallSecrets,
) -> Result<HttpSource, ErrorInfo> {
    let host = host_and_port(request.url());
    let response = execute(client, request, &host).await.map_err(|error| {
        ErrorInfo::new(ErrorCode::Unreachable, format!("cannot reach {host}: {}", secrets.redact(&root_cause(&error))))
    })?;
    if response.status().is_success() {
        Ok(HttpSource { response, host })
    } else {
        Err(status_error(response, secrets).await)
    }
}

/// Tries again while there is no descriptor for the connection: nothing has been sent then.
pub(crate) async fn execute(client: &Client, mut request: Request, host: &str) -> reqwest::Result<Response> {
    let mut backoff = StartBackoff::default();
    loop {
        let next = request.try_clone();
        match (client.execute(request).await, next) {
            (Err(error), Some(next)) if error.is_connect() && has_shortage(&error) => {
                backoff.wait(host).await;
                request = next;
            }
            (result, _) => return result,
        }
    }
}

/// A response body. Dropping it aborts the request.
pub(crate) struct HttpSource {
    response: Response,
    host: String,
}

impl HttpSource {
    fn body_format(&self) -> BodyFormat {
        let header = self.response.headers().get(CONTENT_TYPE);
        let media_type = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if JSON_LINES_MEDIA_TYPES.iter().any(|known| media_type.eq_ignore_ascii_case(known)) {
            BodyFormat::JsonLines
        } else if media_type.eq_ignore_ascii_case(EVENT_STREAM_MEDIA_TYPE) {
            BodyFormat::ServerSentEvents
        } else {
            BodyFormat::Whole
        }
    }
}

impl ByteSource for HttpSource {
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ErrorInfo> {
        self.response.chunk().await.map_err(|error| {
            ErrorInfo::new(
                ErrorCode::HttpError,
                format!("the response of {} was cut off: {}", self.host, root_cause(&error)),
            )
        })
    }
}

async fn status_error(mut response: Response, secrets: &CallSecrets) -> ErrorInfo {
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < ERROR_BODY_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(ERROR_BODY_BYTES_MAX);
    let body = secrets.redact(&String::from_utf8_lossy(&body));
    let body = truncate::first_chars(body.trim(), ERROR_BODY_CHARS_MAX);
    let message = if body.is_empty() { format!("status {status}") } else { format!("status {status}: {body}") };
    let details = Some(serde_json::json!({ "status": status.as_u16() }));
    ErrorInfo { details, ..ErrorInfo::new(ErrorCode::HttpError, message) }
}

/// The outer errors repeat the URL, which contains arguments.
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

pub(crate) fn host_and_port(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

fn invalid_tool_error(why: String) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::InvalidTool, why)
}
