//! `POST /v1/mcp/{server}/authorize`: where the caller goes to authorize an MCP server. `GET` sends a browser there.

use super::path_param;
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::mcp_servers::{client_addresses, find_oauth_server};
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use model::Millis;
use model::id::is_valid_id;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) struct McpServerPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for McpServerPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name = path_param(parts, state, "server").await?;
        if is_valid_id(&name) { Ok(Self(name)) } else { Err(Problem::not_found()) }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMcpAuthorization {}

#[derive(Serialize, JsonSchema)]
pub(crate) struct McpAuthorization {
    /// For the browser of the user.
    authorization_url: String,
    expires_at: Millis,
}

/// For a browser, which has a ticket if there are keys.
pub(crate) async fn redirect(
    State(app): State<App>,
    caller: Caller,
    McpServerPath(name): McpServerPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let server = find_oauth_server(&app, &caller.user, &name)?;
    let started = app.mcp_authorizations.start(&server, &client_addresses(&app, &headers)).await;
    let started = started.map_err(|error| error.describe(&name))?;
    let headers = [
        (header::LOCATION, started.authorization_url),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    McpServerPath(name): McpServerPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let NewMcpAuthorization {} =
        JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?.into_object()?;
    let server = find_oauth_server(&app, &caller.user, &name)?;
    let started = app.mcp_authorizations.start(&server, &client_addresses(&app, &headers)).await;
    let started = started.map_err(|error| error.describe(&name))?;
    let body = McpAuthorization { authorization_url: started.authorization_url, expires_at: started.expires_at };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response())
}
