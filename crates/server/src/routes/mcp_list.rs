//! `GET /v1/mcp`: the MCP servers that the caller's agents use, and which of them the caller has authorized.

use crate::app::App;
use crate::auth::Caller;
use crate::mcp_servers::{callable_servers, token_user};
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::definition::McpAuth;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
pub(crate) struct McpServerList {
    data: Vec<McpServerObject>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct McpServerObject {
    name: String,
    auth: McpAuthKind,
    /// With `oauth`: whether there is a token that may still work.
    #[serde(skip_serializing_if = "Option::is_none")]
    authorized: Option<bool>,
}

/// Whose credential the server gets: none, or that of the config; one that comes with the request; a token of a user who has
/// authorized it; a token of Headwater itself.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum McpAuthKind {
    None,
    User,
    Oauth,
    ClientCredentials,
}

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<McpServerList>, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let definitions = app.gateway.engine.ports().definitions.get();
    let mut data = Vec::new();
    for (name, server) in callable_servers(&definitions, &caller.user) {
        let user = token_user(&caller.user, name, server);
        let auth = match user.as_ref().map(|user| user.auth.as_ref()) {
            None => McpAuthKind::None,
            Some(McpAuth::User) => McpAuthKind::User,
            Some(McpAuth::OAuth(_)) => McpAuthKind::Oauth,
            Some(McpAuth::ClientCredentials(_)) => McpAuthKind::ClientCredentials,
        };
        let authorized = match user.filter(|_| matches!(auth, McpAuthKind::Oauth)) {
            Some(user) => {
                Some(app.mcp_authorizations.is_authorized(&user).await.map_err(|error| error.describe(name))?)
            }
            None => None,
        };
        data.push(McpServerObject { name: name.to_owned(), auth, authorized });
    }
    Ok(Json(McpServerList { data }))
}
