//! `POST /v1/tasks/{id}/cancel`: stops a run.

use super::{TaskPath, idempotency, object, root_row, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::problem::Problem;
use crate::query;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use model::event::CancelMode;
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
    let row = root_row(&app, &caller.user, &task).await?;
    let repeated = app.engine.recall(&caller.user, idempotency.as_ref()).await?.is_some();
    if row.status.is_terminal() && !repeated {
        let detail = "the run has ended already";
        return Err(
            Problem::new(StatusCode::CONFLICT, "already_ended", detail).with("task_status", row.status.as_str())
        );
    }
    if !repeated {
        let (engine, user) = (app.engine.clone(), caller.user.clone());
        to_its_end(async move { engine.cancel(&user, &row, mode, idempotency).await }).await?;
    }
    object(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}
