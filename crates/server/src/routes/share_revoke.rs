//! `DELETE /v1/threads/{id}/shares/{share}`: revokes a share, and ends the streams of its viewers.

use super::{ThreadPath, path_param};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use gateway::share_commands::revoke_share;
use model::id::is_valid_id;

pub(crate) struct SharePath(String);

impl<S: Send + Sync> FromRequestParts<S> for SharePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let id = path_param(parts, state, "share").await?;
        if is_valid_id(&id) { Ok(Self(id)) } else { Err(Problem::not_found()) }
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    SharePath(share): SharePath,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    revoke_share(&app.gateway, &caller.user, thread, share).await?;
    Ok(StatusCode::NO_CONTENT)
}
