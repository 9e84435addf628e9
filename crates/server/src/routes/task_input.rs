//! `POST /v1/tasks/{id}/input`: sends more input to a run. If it has ended, the input starts the next run of its thread.

use super::{TaskPath, task_response};
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use gateway::task_commands::send_input;
use protocol::task::SendInputRequest;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let _large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/input"), || json.digest())?;
    let input = json.into_object::<SendInputRequest>()?.input.into_parts(app.gateway.limits.parts_max)?;
    let started = Box::pin(send_input(&app.gateway, &caller.user, &task, input, idempotency)).await?;
    task_response(&app, &caller.user, &started.task, StatusCode::ACCEPTED).await
}
