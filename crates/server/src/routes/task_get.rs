//! `GET /v1/tasks/{id}`: the task as one JSON object.

use super::TaskPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use gateway::task_commands::find_task;
use model::task::TaskObject;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
) -> Result<Json<TaskObject>, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    Ok(Json(find_task(&app.gateway, &caller.user, &task).await?))
}
