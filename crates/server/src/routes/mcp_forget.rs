//! `DELETE /v1/mcp/{server}/authorization`: deletes the caller's tokens for an MCP server.

use super::mcp_authorize::McpServerPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::extract::State;
use axum::http::{StatusCode, Uri};

/// Also of a server that the config no longer has.
pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    McpServerPath(name): McpServerPath,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let forgotten = app.mcp_authorizations.forget(&caller.user, &name).await;
    if forgotten.map_err(|error| error.describe(&name))? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}
