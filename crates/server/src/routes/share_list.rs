//! `GET /v1/threads/{id}/shares`: lists the shares of a thread, revoked ones included.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use gateway::native_json::ShareObject;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
pub(crate) struct ShareList<'a> {
    data: Vec<ShareObject<'a>>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let directory = &app.gateway.engine.ports().directory;
    directory.thread(&caller.user, &thread).await?.ok_or_else(Problem::not_found)?;
    let rows = directory.shares(&caller.user, &thread).await?;
    let data = rows.iter().map(|row| ShareObject::new(row, None)).collect();
    Ok(Json(ShareList { data }).into_response())
}
