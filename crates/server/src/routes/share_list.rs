//! `GET /v1/threads/{id}/shares`: lists the shares of a thread, revoked ones included.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use gateway::native_json;
use serde_json::{Value, json};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let directory = &app.gateway.engine.ports().directory;
    directory.thread(&caller.user, &thread).await?.ok_or_else(Problem::not_found)?;
    let rows = directory.shares(&caller.user, &thread).await?;
    Ok(Json(json!({ "data": rows.iter().map(native_json::share_json).collect::<Vec<_>>() })))
}
