//! One conversation with a server that has a URL: the headers of its requests, and what its statuses mean.

use crate::http_body;
use crate::limits::ERROR_TEXT_BYTES_MAX;
use crate::link::{ConnectionLink, RequestFailure, RequestFate, lock};
use crate::message::parse_message;
use crate::token_source::{BearerToken, TokenRefusal, TokenSource, TokenUser};
use crate::tool_list::clean_text;
use bytes::Bytes;
use model::error::{ErrorCode, ErrorInfo};
use rmcp::model::{ErrorData, JsonRpcMessage, ProtocolVersion};
use std::sync::{Arc, Mutex};
use tools::{EndpointMethod, EndpointRequest, EndpointResponse, HttpEndpoint};

/// `WWW-Authenticate` headers that are looked at, and how much of each.
const CHALLENGES_MAX: usize = 8;
const CHALLENGE_BYTES_MAX: usize = 8 * 1024;
const UNKNOWN_SESSION_CODE: i32 = -32000;

/// What a request proves its user with, besides the headers of the operator.
#[derive(Clone)]
pub(crate) enum EndpointCredential {
    None,
    /// It came with the request of the user.
    Token(BearerToken),
    Source {
        source: Arc<dyn TokenSource>,
        user: TokenUser,
    },
}

pub(crate) struct HttpSession {
    pub(crate) label: String,
    pub(crate) endpoint: HttpEndpoint,
    pub(crate) credential: EndpointCredential,
    pub(crate) link: Arc<ConnectionLink>,
    pub(crate) state: Mutex<SessionState>,
}

/// What the handshake has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionState {
    /// `None` where the server keeps none.
    pub(crate) id: Option<String>,
    /// `None` before the handshake.
    pub(crate) version: Option<ProtocolVersion>,
    /// The server says when its tools change.
    pub(crate) announces_new_tools: bool,
}

/// A request without the headers that all have.
pub(crate) struct SessionRequest {
    pub(crate) method: EndpointMethod,
    pub(crate) body: Bytes,
    /// `None` is the version of the handshake.
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) headers: Vec<(String, String)>,
}

/// A response with status 2xx, and the token that it was given for.
pub(crate) struct SessionResponse {
    pub(crate) response: EndpointResponse,
    pub(crate) token: Option<BearerToken>,
}

/// Why there is no response with status 2xx.
pub(crate) enum SessionError {
    Failed(RequestFailure),
    /// Another status, without an explanation.
    Status {
        status: u16,
        failure: RequestFailure,
    },
    /// The server explains itself with an error of the protocol.
    Rpc {
        status: u16,
        error: ErrorData,
    },
}

impl HttpSession {
    pub(crate) fn new(
        label: &str,
        endpoint: HttpEndpoint,
        credential: EndpointCredential,
        link: Arc<ConnectionLink>,
    ) -> Self {
        Self { label: label.to_owned(), endpoint, credential, link, state: Mutex::default() }
    }

    pub(crate) fn state(&self) -> SessionState {
        lock(&self.state).clone()
    }

    /// Sends a request, once more with another token if the first is refused.
    pub(crate) async fn send(&self, request: &SessionRequest) -> Result<SessionResponse, SessionError> {
        let state = self.state();
        let mut token = self.current_token().await?;
        let mut may_replace = true;
        loop {
            let built = self.build(request, &state, token.as_ref());
            let mut response = self.endpoint.send(built).await.map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            match status {
                200..=299 => return Ok(SessionResponse { response, token }),
                401 | 403 => {
                    token = Some(self.replace_token(&response, token, &mut may_replace).await?);
                }
                404 if state.id.is_some() => return Err(self.session_ended()),
                _ => {
                    let error = self.status_error(&mut response, token.as_ref()).await;
                    return Err(if state.id.is_some() && is_unknown_session(&error) {
                        self.session_ended()
                    } else {
                        error
                    });
                }
            }
        }
    }

    fn build(&self, request: &SessionRequest, state: &SessionState, token: Option<&BearerToken>) -> EndpointRequest {
        let mut headers = Vec::new();
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        match request.method {
            EndpointMethod::Post => {
                add("accept", "application/json, text/event-stream");
                add("content-type", "application/json");
            }
            EndpointMethod::Get => add("accept", "text/event-stream"),
            EndpointMethod::Delete => {}
        }
        if let Some(version) = request.version.as_ref().or(state.version.as_ref()) {
            add("mcp-protocol-version", version.as_str());
        }
        if let Some(id) = &state.id {
            add("mcp-session-id", id);
        }
        if let Some(token) = token {
            add("authorization", &format!("Bearer {}", token.as_str()));
        }
        headers.extend(request.headers.iter().cloned());
        EndpointRequest { method: request.method, headers, body: request.body.clone() }
    }

    async fn current_token(&self) -> Result<Option<BearerToken>, SessionError> {
        match &self.credential {
            EndpointCredential::None => Ok(None),
            EndpointCredential::Token(token) => Ok(Some(token.clone())),
            EndpointCredential::Source { source, user } => source.bearer_token(user).await.map_err(refused),
        }
    }

    /// A token for a request that was refused.
    async fn replace_token(
        &self,
        response: &EndpointResponse,
        token: Option<BearerToken>,
        may_replace: &mut bool,
    ) -> Result<BearerToken, SessionError> {
        let (label, status) = (&self.label, response.status());
        let challenges: Vec<String> = response
            .headers("www-authenticate")
            .filter(|challenge| challenge.len() <= CHALLENGE_BYTES_MAX)
            .take(CHALLENGES_MAX)
            .map(str::to_owned)
            .collect();
        let is_challenge = status == 401 || !challenges.is_empty();
        let what = match &self.credential {
            EndpointCredential::Source { source, user } if is_challenge && std::mem::take(may_replace) => {
                let refusal = TokenRefusal { status, challenges, token };
                return source.replace_token(user, refusal).await.map_err(refused);
            }
            EndpointCredential::Source { .. } => "refused the token that was issued for it".to_owned(),
            EndpointCredential::Token(_) => format!(
                "refused the credential of this request: send another one in the header \
                 `Headwater-Mcp-Authorization: {label} TOKEN`"
            ),
            EndpointCredential::None => format!(
                "requires a credential: send one in the header `Headwater-Mcp-Authorization: {label} TOKEN`, or let \
                 the operator set `headers` or `auth`"
            ),
        };
        let message = format!("The MCP server `{label}` answered with status {status} and {what}.");
        Err(failure(ErrorCode::McpUnauthorized, message, RequestFate::Refused))
    }

    fn session_ended(&self) -> SessionError {
        let message = format!("The MCP server `{}` has ended the session.", self.label);
        failure(ErrorCode::McpUnavailable, message, RequestFate::SessionEnded)
    }

    fn unreachable(&self, error: &ErrorInfo) -> SessionError {
        let fate = if error.has_code(ErrorCode::Unreachable) { RequestFate::Refused } else { RequestFate::Unknown };
        let message = format!("The MCP server `{}` does not answer: {}.", self.label, error.message);
        failure(ErrorCode::McpUnavailable, message, fate)
    }

    async fn status_error(&self, response: &mut EndpointResponse, token: Option<&BearerToken>) -> SessionError {
        let (label, status) = (&self.label, response.status());
        if (300..=399).contains(&status) {
            let message =
                format!("The MCP server `{label}` answered with status {status}: redirects are not followed.");
            return failure(ErrorCode::McpProtocolError, message, RequestFate::Refused);
        }
        let is_json = media_type(response) == "application/json";
        let body = http_body::read_error_body(response).await;
        let body = self.endpoint.redact_json(str::from_utf8(&body).unwrap_or_default(), token.map(BearerToken::as_str));
        if let Some(JsonRpcMessage::Error(error)) = parse_message(body.as_bytes()).filter(|_| is_json) {
            return SessionError::Rpc { status, error: error.error };
        }
        let fate = if status < 500 { RequestFate::Refused } else { RequestFate::Unknown };
        let message = format!("The MCP server `{label}` answered with status {status}.");
        let error = ErrorInfo::new(ErrorCode::McpUnavailable, message);
        SessionError::Status { status, failure: RequestFailure { error, fate } }
    }
}

impl SessionError {
    /// For requests whose caller does not read errors of the protocol.
    pub(crate) fn into_failure(self, label: &str) -> RequestFailure {
        match self {
            Self::Failed(failure) | Self::Status { failure, .. } => failure,
            Self::Rpc { status, error } => {
                let text = clean_text(&error.message, ERROR_TEXT_BYTES_MAX);
                let message = format!("The MCP server `{label}` answered with status {status}: {text}");
                let fate = if status < 500 { RequestFate::Refused } else { RequestFate::Unknown };
                RequestFailure { error: ErrorInfo::new(ErrorCode::McpUnavailable, message), fate }
            }
        }
    }
}

/// Servers that follow the examples of the TypeScript SDK refuse a session that they do not know with 400 instead of 404.
fn is_unknown_session(error: &SessionError) -> bool {
    let SessionError::Rpc { status: 400, error } = error else { return false };
    error.code.0 == UNKNOWN_SESSION_CODE && error.message.to_ascii_lowercase().contains("session")
}

fn failure(code: ErrorCode, message: String, fate: RequestFate) -> SessionError {
    SessionError::Failed(RequestFailure { error: ErrorInfo::new(code, message), fate })
}

fn refused(error: ErrorInfo) -> SessionError {
    SessionError::Failed(RequestFailure { error, fate: RequestFate::Refused })
}

/// Without parameters, in lower case.
pub(crate) fn media_type(response: &EndpointResponse) -> String {
    let header = response.header("content-type").unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
