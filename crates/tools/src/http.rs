//! A tool behind an address: one request, whose answer is read as it comes.

use crate::address;
use crate::arguments::Arguments;
use crate::lines::Lines;
use crate::secret::Secrets;
use crate::source::{Answer, Source};
use crate::tail;
use crate::toolbox::Toolbox;
use bytes::Bytes;
use model::definition::HttpTool;
use model::event::ErrorInfo;
use model::tool::ToolRequest;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request, Response, Url};
use std::error::Error;

/// So much of a refusal's body is put into the error.
const REFUSAL_CHARS_MAX: usize = 500;
/// So much of it is read, so that a secret in it is found whole.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;

/// Answers with one event per line.
const LINE_TYPES: [&str; 5] =
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines"];

/// Asks.
pub(crate) async fn open(toolbox: &Toolbox, tool: &HttpTool, call: &ToolRequest) -> Result<Answer<Body>, ErrorInfo> {
    let mut secrets = Secrets::default();
    let mut request = request(tool, &call.arguments)?;
    for (name, value) in &tool.headers {
        let value = secrets.fill(value, &toolbox.env).await?;
        put(request.headers_mut(), name, &value)?;
    }
    // Ours come last, so that no definition can speak for somebody else.
    for (name, value) in [
        ("idempotency-key", call.call_id.as_str()),
        ("headwater-user", call.user.as_str()),
        ("headwater-thread", call.thread.as_str()),
        ("headwater-run", call.run.as_str()),
        ("headwater-call", call.call_id.as_str()),
    ] {
        put(request.headers_mut(), name, value)?;
    }
    let source = send(&toolbox.http, request, &secrets).await?;
    let lines = if source.has_lines() { Lines::new } else { Lines::whole };
    let lines = lines(call.output_bytes_max).pointing(tool.result.clone());
    Ok(Answer { source, lines })
}

/// Method, address and body. What the address does not use is the query of a method that has no body, else the body.
fn request(tool: &HttpTool, arguments: &str) -> Result<Request, ErrorInfo> {
    let arguments = Arguments::parse(arguments)?;
    let method = Method::from_bytes(tool.method.to_ascii_uppercase().as_bytes())
        .map_err(|_| invalid_tool(format!("`{}` is not a method", tool.method)))?;
    let mut address = address::fill(&tool.url, &arguments)?;
    let body = match (&tool.body, &method) {
        (Some(template), _) => Some(arguments.fill(template)),
        (None, &Method::GET | &Method::HEAD | &Method::DELETE) => {
            let pairs = arguments.pairs(&address.used);
            if !pairs.is_empty() {
                address.url.query_pairs_mut().extend_pairs(pairs);
            }
            None
        }
        (None, _) => Some(arguments.json(&address.used)),
    };
    let mut request = Request::new(method, address.url);
    if let Some(body) = body {
        set_json(&mut request, body);
    }
    Ok(request)
}

/// Gives a request a JSON body.
pub(crate) fn set_json(request: &mut Request, body: impl Into<reqwest::Body>) {
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.body_mut() = Some(body.into());
}

/// Sets a header. Its value may be a secret, so it is in no error and hidden in what others print of the request.
pub(crate) fn put(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), ErrorInfo> {
    let invalid = || invalid_tool(format!("the header `{name}` cannot be sent"));
    let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
    value.set_sensitive(true);
    headers.insert(key, value);
    Ok(())
}

/// Sends a request. An answer that is not a 2xx is an error.
pub(crate) async fn send(client: &Client, request: Request, secrets: &Secrets) -> Result<Body, ErrorInfo> {
    let host = host(request.url());
    let response = client.execute(request).await.map_err(|error| {
        ErrorInfo::new("unreachable", format!("cannot reach {host}: {}", secrets.redact(&reason(&error))))
    })?;
    if response.status().is_success() { Ok(Body { response, host }) } else { Err(refusal(response, secrets).await) }
}

/// The body of an answer. Dropping it ends the request.
pub(crate) struct Body {
    response: Response,
    host: String,
}

impl Body {
    fn has_lines(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        LINE_TYPES.iter().any(|lines| kind.eq_ignore_ascii_case(lines))
    }
}

impl Source for Body {
    async fn read(&mut self) -> Result<Option<Bytes>, ErrorInfo> {
        self.response.chunk().await.map_err(|error| {
            ErrorInfo::new("http_error", format!("the answer of {} broke off: {}", self.host, reason(&error)))
        })
    }
}

async fn refusal(mut response: Response, secrets: &Secrets) -> ErrorInfo {
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(piece)) = response.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(REFUSAL_BYTES_MAX);
    let body = secrets.redact(&String::from_utf8_lossy(&body));
    let said = tail::first(body.trim(), REFUSAL_CHARS_MAX);
    let message = if said.is_empty() { format!("status {status}") } else { format!("status {status}: {said}") };
    let details = Some(serde_json::json!({ "status": status.as_u16() }));
    ErrorInfo { details, ..ErrorInfo::new("http_error", message) }
}

/// The innermost reason. The outer ones repeat the address, which has arguments in it.
fn reason(error: &reqwest::Error) -> String {
    let mut reason: &dyn Error = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}

fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

fn invalid_tool(why: String) -> ErrorInfo {
    ErrorInfo::new("invalid_tool", why)
}
