//! `POST /v1/threads/{id}/shares`: creates a token that gives read access to a thread, live or frozen as it is now.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use gateway::native_json::{ShareMode, ShareObject};
use gateway::share_commands::{CreatedShare, create_share};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShareRequest {
    mode: ShareMode,
    /// A week by default, a leap year at most.
    #[serde(default)]
    expires_in_seconds: Option<u64>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let ShareRequest { mode, expires_in_seconds } =
        JsonBody::read(&headers, body, &app.limits, &caller.user).await?.into_object()?;
    let created = create_share(&app.gateway, &caller.user, thread, mode, expires_in_seconds).await?;
    let CreatedShare { row, token } = created;
    let object = ShareObject::new(&row, Some(&token));
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], axum::Json(object)).into_response())
}
