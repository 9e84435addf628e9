//! `POST /v1/tasks/{id}/cancel`: cancels a run, or one sub-agent of it with its descendants.

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
use gateway::task_commands::cancel_task;
use protocol::task::CancelRequest;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let json = JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?;
    let idempotency = parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/cancel"), || json.digest())?;
    let CancelRequest { mode } = json.into_object()?;
    cancel_task(&app.gateway, &caller.user, &task, mode, idempotency).await?;
    task_response(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}
