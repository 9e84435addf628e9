//! `GET /v1/tasks/{id}`: the task as one JSON object, as of what is durable now.

use super::TaskPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::task::TaskObject;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
) -> Result<Json<TaskObject>, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    app.engine.task_object(&caller.user, &task).await?.map(Json).ok_or_else(Problem::not_found)
}
