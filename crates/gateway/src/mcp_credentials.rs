//! The user's own credentials for MCP servers, as requests bring them.

use crate::context::Gateway;
use crate::rejection::{Rejection, truncate_id};
use model::definition::{McpEndpoint, McpTransport};
use model::mcp_credentials::McpCredentials;
use model::{TaskId, UserId};

/// A server that a request names, with or without the user's credential for it.
#[derive(Clone, Copy)]
pub struct NamedMcpServer<'a> {
    /// Where the request names it.
    pub field: &'a str,
    pub label: &'a str,
    pub url: Option<&'a str>,
    pub token: Option<&'a str>,
}

/// Adds the credential, if there is one. A server that the config does not have is rejected, and so is one that would be
/// sent the credential at another URL than the request says.
pub fn add_credential(
    gateway: &Gateway,
    credentials: &mut McpCredentials,
    server: NamedMcpServer<'_>,
) -> Result<(), Rejection> {
    let NamedMcpServer { field, label, url, token } = server;
    let definitions = gateway.engine.ports().definitions.get();
    let shown = truncate_id(label);
    let Some(known) = definitions.mcp.get(label) else {
        let reason = format!("the config has no MCP server `{shown}`");
        return Err(Rejection::invalid_field(field, reason));
    };
    let endpoint = match &known.program.transport {
        McpTransport::Endpoint(endpoint) => Some(endpoint),
        McpTransport::Command(_) => None,
    };
    let is_elsewhere = |McpEndpoint { url: known, .. }: &&McpEndpoint| url.is_some_and(|url| url != known);
    if endpoint.filter(is_elsewhere).is_some() {
        let reason = format!("the MCP server `{shown}` has another URL in the config: leave out `server_url`");
        return Err(Rejection::invalid_field(field, reason));
    }
    match (token, endpoint) {
        (None, _) => Ok(()),
        (Some(_), None) => {
            let reason = format!("the MCP server `{shown}` is a program, which takes no credential");
            Err(Rejection::invalid_field(field, reason))
        }
        (Some(token), Some(_)) => match credentials.insert(label, token) {
            true => Ok(()),
            false => Err(Rejection::invalid_field(field, format!("two credentials for the MCP server `{shown}`"))),
        },
    }
}

/// Keeps the credentials of a request that answers a run, if it is the user's.
pub async fn keep_for_run(
    gateway: &Gateway,
    user: &UserId,
    run: &TaskId,
    credentials: McpCredentials,
) -> Result<(), Rejection> {
    if !credentials.is_empty()
        && let Some(run) = gateway.engine.run_of_task(user, run).await?
    {
        gateway.engine.keep_credentials(&run.id, credentials);
    }
    Ok(())
}
