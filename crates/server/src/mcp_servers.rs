//! The MCP servers of a caller, and the addresses that authorization servers must know.

use crate::app::App;
use crate::problem::Problem;
use axum::http::{HeaderMap, header};
use mcp::{ClientAddresses, TokenUser};
use model::UserId;
use model::definition::{Definitions, McpAuth, McpServer, McpTransport};
use model::error::{ErrorCode, ErrorInfo};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const CALLBACK_PATH: &str = "/v1/mcp/callback";
pub(crate) const CLIENT_DOCUMENT_PATH: &str = "/v1/mcp/client.json";

/// The servers of all agents that the user may call.
pub(crate) fn callable_servers<'a>(definitions: &'a Definitions, user: &UserId) -> BTreeMap<&'a str, &'a McpServer> {
    definitions.callable_agents(user).flat_map(|agent| definitions.mcp_servers_of(agent)).collect()
}

/// `None` for a server that gets no credential of the user.
pub(crate) fn token_user(user: &UserId, label: &str, server: &McpServer) -> Option<TokenUser> {
    let McpTransport::Endpoint(endpoint) = &server.program.transport else { return None };
    let auth = Arc::clone(endpoint.auth.as_ref()?);
    Some(TokenUser { user: user.clone(), label: label.to_owned(), url: endpoint.url.clone(), auth })
}

/// A server that the user may authorize.
pub(crate) fn find_oauth_server(app: &App, user: &UserId, label: &str) -> Result<TokenUser, Problem> {
    let definitions = app.gateway.engine.ports().definitions.get();
    let server = callable_servers(&definitions, user).get(label).and_then(|server| token_user(user, label, server));
    server.filter(|server| matches!(server.auth.as_ref(), McpAuth::OAuth(_))).ok_or_else(|| {
        let detail = "no MCP server of this name that uses OAuth; GET /v1/mcp lists the servers";
        Problem::new(ErrorCode::NotFound, detail)
    })
}

/// The configured origin, else the one of the request, whose `Host` the origin policy has checked.
pub(crate) fn client_addresses(app: &App, headers: &HeaderMap) -> ClientAddresses {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let base = app.public_url.clone().unwrap_or_else(|| format!("http://{host}"));
    let base = base.trim_end_matches('/');
    ClientAddresses { callback_url: format!("{base}{CALLBACK_PATH}"), document_url: document_url(app) }
}

/// Only under a public address with TLS can an authorization server read it.
pub(crate) fn document_url(app: &App) -> Option<String> {
    let base = app.public_url.as_deref().filter(|url| url.starts_with("https://"))?;
    Some(format!("{}{CLIENT_DOCUMENT_PATH}", base.trim_end_matches('/')))
}

impl From<ErrorInfo> for Problem {
    fn from(error: ErrorInfo) -> Self {
        let code = ErrorCode::ALL.iter().find(|code| error.has_code(**code)).copied().unwrap_or(ErrorCode::Internal);
        let problem = Self::new(code, error.message);
        if code.http_status() == 503 { problem.with_retry_after() } else { problem }
    }
}
