//! `GET /v1/tasks/{id}`: the task as one JSON object.

use super::TaskPath;
use crate::app::App;
use crate::auth::Caller;
use crate::json_response::task_json;
use crate::problem::Problem;
use crate::query_params;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use gateway::task_commands::find_task;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    Ok(task_json(&find_task(&app.gateway, &caller.user, &task).await?))
}
