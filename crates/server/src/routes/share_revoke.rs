//! `DELETE /v1/threads/{id}/shares/{share}`: takes a share back. Whoever watches through it is let go.

use super::{ThreadPath, path_param, run_to_completion};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use model::id::is_valid_id;

/// The share that a path names.
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
    let revoked = run_to_completion(async move {
        let ports = app.engine.ports();
        let revoked = ports
            .directory
            .writer(&caller.user)?
            .revoke_share(&caller.user, &thread, &share, ports.clock.now())
            .await?;
        if revoked {
            app.shares.revoke(&share);
        }
        Ok::<bool, Problem>(revoked)
    })
    .await?;
    if revoked { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}
