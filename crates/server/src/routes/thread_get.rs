//! `GET /v1/threads/{id}`: a thread, with the length of its log and its cost.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use gateway::native_json::ThreadObject;
use gateway::run_lookup::log_head;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let row =
        app.gateway.engine.ports().directory.thread(&caller.user, &thread).await?.ok_or_else(Problem::not_found)?;
    let head = log_head(&app.gateway, &caller.user, &thread).await?;
    let usage = app.gateway.engine.thread_usage(&caller.user, &thread, head).await?;
    Ok(Json(ThreadObject::new(&row, head, usage)).into_response())
}
