//! `POST /v1/tasks/{id}/cancel`: stops a run, or one sub-agent of it with all below.

use super::{TaskPath, find_run_of_task, parse_idempotency_key, run_to_completion, task_response};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use model::command::CancelCommand;
use model::error::ErrorCode;
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
    let [] = query_params::parse_query(&uri, [])?;
    let json = JsonBody::read_optional(&headers, body, &app.limits).await?;
    let idempotency = parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/cancel"), &json.digest())?;
    let Request { mode } = json.into_object()?;
    let row = find_run_of_task(&app, &caller.user, &task).await?;
    if app.engine.find_submission(&caller.user, idempotency.as_ref()).await?.is_none() {
        let status = find_task_status(&app, &caller.user, &row, &task).await?;
        if status.is_terminal() {
            let problem = Problem::new(ErrorCode::AlreadyEnded, "it has ended already");
            return Err(problem.with_extension("task_status", status.as_str()));
        }
        let (engine, user) = (app.engine.clone(), caller.user.clone());
        let cancel = CancelCommand { task_id: task.clone(), mode };
        run_to_completion(async move { engine.cancel(&user, &row.thread, cancel, idempotency).await }).await?;
    }
    task_response(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}

/// Where the task is. A run's row says it; a sub-agent has none.
async fn find_task_status(app: &App, user: &UserId, row: &RunRow, task: &TaskId) -> Result<TaskStatus, Problem> {
    if row.id == *task {
        return Ok(row.status);
    }
    let object = app.engine.task_object(user, task).await?.ok_or_else(Problem::not_found)?;
    Ok(object.status)
}
