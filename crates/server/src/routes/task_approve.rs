//! `POST /v1/tasks/{id}/approvals/{key}`: decides what a run waits for.

use super::{TaskPath, task_row};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::problem::Problem;
use crate::query;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use model::block::Object;
use model::event::DecisionKind;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    decision: DecisionKind,
    #[serde(default)]
    #[expect(dead_code, reason = "read for its shape: no run asks for approval yet")]
    message: Option<String>,
    #[serde(default)]
    arguments: Option<Object>,
    #[serde(default)]
    #[expect(dead_code, reason = "read for its shape: no run asks for approval yet")]
    always: bool,
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
    let request: Request = Json::read(&headers, body, &app.limits).await?.object()?;
    if (request.decision == DecisionKind::Edit) != request.arguments.is_some() {
        return Err(Problem::invalid_body("`arguments` belong to the decision `edit`, and to no other"));
    }
    task_row(&app, &caller.user, &task).await?;
    Err(Problem::new(StatusCode::NOT_FOUND, "approval_not_found", "the run does not wait for this approval"))
}
