//! A server with a URL that is spoken to in many requests: an MCP server.
//!
//! Redirects are not followed and proxies not used, as for every request of a tool (`toolbox`). Bodies are read in chunks:
//! the caller bounds them.

use crate::context::ToolContext;
use crate::http::{execute, host_and_port, root_cause, set_header};
use crate::secrets::{CallSecrets, replace_json};
use bytes::Bytes;
use model::definition::McpEndpoint;
use model::error::{ErrorCode, ErrorInfo};
use model::limits::SECRET_CHARS_MIN;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Request, Response, Url};
use std::borrow::Cow;
use std::sync::Arc;

/// A URL and the headers of the operator. It has no `Debug`: it holds secrets.
#[derive(Clone)]
pub struct HttpEndpoint {
    client: Client,
    url: Url,
    host: String,
    headers: HeaderMap,
    secrets: Arc<CallSecrets>,
}

/// A request to an endpoint. It has no `Debug`: headers may be credentials.
#[derive(Clone, Default)]
pub struct EndpointRequest {
    pub method: EndpointMethod,
    /// They replace those of the operator.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointMethod {
    Get,
    #[default]
    Post,
    Delete,
}

/// A response whose body has not been read. Dropping it aborts the request.
#[derive(Debug)]
pub struct EndpointResponse {
    response: Response,
    host: String,
}

impl HttpEndpoint {
    /// Resolves the secrets in the headers.
    pub(crate) async fn open(context: &ToolContext, endpoint: &McpEndpoint) -> Result<Self, ErrorInfo> {
        let url = Url::parse(&endpoint.url)
            .map_err(|_| ErrorInfo::new(ErrorCode::InvalidTool, "the configured URL is not a URL"))?;
        let (mut secrets, mut headers) = (CallSecrets::default(), HeaderMap::new());
        for (name, value) in &endpoint.headers {
            let value = secrets.resolve(value, &context.env).await?;
            set_header(&mut headers, name, &value)?;
        }
        let host = host_and_port(&url);
        Ok(Self { client: context.http.clone(), url, host, headers, secrets: Arc::new(secrets) })
    }

    /// Fails if the server cannot be reached; every status is a response.
    pub async fn send(&self, request: EndpointRequest) -> Result<EndpointResponse, ErrorInfo> {
        let method = match request.method {
            EndpointMethod::Get => Method::GET,
            EndpointMethod::Post => Method::POST,
            EndpointMethod::Delete => Method::DELETE,
        };
        let mut sent = Request::new(method, self.url.clone());
        *sent.headers_mut() = self.headers.clone();
        for (name, value) in &request.headers {
            set_header(sent.headers_mut(), name, value)?;
        }
        if request.method == EndpointMethod::Post {
            *sent.body_mut() = Some(request.body.into());
        }
        match execute(&self.client, sent, &self.host).await {
            Ok(response) => Ok(EndpointResponse { response, host: self.host.clone() }),
            // The cause of an error that comes later may be in the middle of the request.
            Err(error) => {
                let code = if error.is_connect() { ErrorCode::Unreachable } else { ErrorCode::HttpError };
                let cause = self.secrets.redact(&root_cause(&error));
                Err(ErrorInfo::new(code, format!("cannot reach {}: {cause}", self.host)))
            }
        }
    }

    /// A JSON text without the secrets of the headers, and without `token`.
    #[must_use]
    pub fn redact_json<'a>(&self, text: &'a str, token: Option<&str>) -> Cow<'a, str> {
        // A short one is a part of words.
        let token = token.filter(|token| token.len() >= SECRET_CHARS_MIN);
        if token.is_none() && self.secrets.is_empty() {
            return Cow::Borrowed(text);
        }
        let text = self.secrets.redact_json(text);
        Cow::Owned(match token {
            Some(token) => replace_json(text, token, "[token]"),
            None => text,
        })
    }
}

impl EndpointResponse {
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// All values of a header.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.response.headers().get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }

    /// The next piece of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ErrorInfo> {
        self.response.chunk().await.map_err(|error| {
            let message = format!("the response of {} was cut off: {}", self.host, root_cause(&error));
            ErrorInfo::new(ErrorCode::HttpError, message)
        })
    }
}
