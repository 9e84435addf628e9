//! `POST /api/v1/agent/runs/{thread}/cancel`: stops what runs in a thread. What waits behind it has its turn then.

use super::agent_names::{self, NamePath};
use super::{idempotency, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::problem::Problem;
use crate::query;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use model::command::CancelCommand;
use model::event::CancelMode;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    mode: CancelMode,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    NamePath(name): NamePath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query::read(&uri, [])?;
    let json = Json::read_optional(&headers, body, &app.limits).await?;
    let idempotency = idempotency(&headers, &format!("POST /api/v1/agent/runs/{name}/cancel"), &json.digest())?;
    let Request { mode } = json.object()?;
    let thread = agent_names::find(&app, &caller.user, &name).await?;
    let task_id = match app.engine.find_submission(&caller.user, idempotency.as_ref()).await? {
        Some(before) => before.task,
        None => {
            let Some(task_id) = app.engine.active_run(&caller.user, &thread).await? else {
                return Err(Problem::new(StatusCode::CONFLICT, "already_ended", "nothing runs in this thread"));
            };
            let (engine, user) = (app.engine.clone(), caller.user.clone());
            let cancel = CancelCommand { task_id: task_id.clone(), mode };
            to_its_end(async move { engine.cancel(&user, &thread, cancel, idempotency).await }).await?;
            task_id
        }
    };
    let names = json!({ "threadId": name, "runId": task_id });
    Ok((StatusCode::ACCEPTED, axum::Json(names)).into_response())
}
