//! The header `Headwater-Mcp-Authorization: NAME TOKEN`: the user's own credential for an MCP server.

use crate::app::App;
use crate::problem::Problem;
use axum::http::{HeaderMap, header};
use gateway::mcp_credentials::{NamedMcpServer, add_credential};
use model::mcp_credentials::McpCredentials;

const HEADER: &str = "headwater-mcp-authorization";
const TOKEN_BYTES_MAX: usize = 16 * 1024;
const SERVERS_MAX: usize = 32;

/// The credentials of a request: one for each time that it has the header.
pub(crate) fn parse_mcp_credentials(app: &App, headers: &HeaderMap) -> Result<McpCredentials, Problem> {
    let mut credentials = McpCredentials::default();
    for (index, value) in headers.get_all(HEADER).iter().enumerate() {
        let parts = value.to_str().ok().and_then(|text| text.trim().split_once(' '));
        let Some((label, token)) = parts.filter(|_| index < SERVERS_MAX) else {
            return Err(Problem::invalid_field(HEADER, "expected `NAME TOKEN`, for at most 32 MCP servers"));
        };
        let server = NamedMcpServer { field: HEADER, label, url: None, token: Some(token.trim()) };
        add_mcp_credential(app, headers, &mut credentials, server)?;
    }
    Ok(credentials)
}

/// Adds the credential for one server.
pub(crate) fn add_mcp_credential(
    app: &App,
    headers: &HeaderMap,
    credentials: &mut McpCredentials,
    server: NamedMcpServer<'_>,
) -> Result<(), Problem> {
    if let Some(token) = server.token {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "the token has at most 16 KiB of printable ASCII characters, without spaces";
            return Err(Problem::invalid_field(server.field, reason));
        }
        if is_own_credential(headers, token) {
            let reason = "this is the credential for Headwater itself, which no MCP server is sent";
            return Err(Problem::invalid_field(server.field, reason));
        }
    }
    Ok(add_credential(&app.gateway, credentials, server)?)
}

/// Whether the request itself was authenticated with the token.
fn is_own_credential(headers: &HeaderMap, token: &str) -> bool {
    let own = [header::AUTHORIZATION.as_str(), "x-api-key"].map(|name| headers.get(name)?.to_str().ok());
    own.into_iter().flatten().any(|value| value.trim().rsplit(' ').next() == Some(token))
}
