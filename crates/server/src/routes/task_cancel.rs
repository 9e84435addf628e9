//! `POST /v1/tasks/{id}/cancel`: stops a run, or one sub-agent of it with all below.

use super::{TaskPath, idempotency, object, task_row, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::problem::Problem;
use crate::query;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use model::command::CancelCommand;
use model::event::CancelMode;
use model::ports::RunRow;
use model::task::TaskStatus;
use model::{TaskId, UserId};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    mode: CancelMode,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query::read(&uri, [])?;
    let json = Json::read_optional(&headers, body, &app.limits).await?;
    let idempotency = idempotency(&headers, &format!("POST /v1/tasks/{task}/cancel"), &json.digest())?;
    let Request { mode } = json.object()?;
    let row = task_row(&app, &caller.user, &task).await?;
    if app.engine.find_submission(&caller.user, idempotency.as_ref()).await?.is_none() {
        let status = status(&app, &caller.user, &row, &task).await?;
        if status.is_terminal() {
            let problem = Problem::new(StatusCode::CONFLICT, "already_ended", "it has ended already");
            return Err(problem.with("task_status", status.as_str()));
        }
        let (engine, user) = (app.engine.clone(), caller.user.clone());
        let cancel = CancelCommand { task_id: task.clone(), mode };
        to_its_end(async move { engine.cancel(&user, &row.thread, cancel, idempotency).await }).await?;
    }
    object(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}

/// Where the task is. A run's row says it; a sub-agent has none.
async fn status(app: &App, user: &UserId, row: &RunRow, task: &TaskId) -> Result<TaskStatus, Problem> {
    if row.id == *task {
        return Ok(row.status);
    }
    let object = app.engine.task_object(user, task).await?.ok_or_else(Problem::not_found)?;
    Ok(object.status)
}
