//! `POST /api/v1/agent/runs/{thread}/cancel`: stops what runs in a thread. What waits behind it has its turn then.

use super::agent_threads::{self, ThreadNamePath};
use super::{parse_idempotency_key, run_to_completion};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use model::command::CancelCommand;
use model::error::ErrorCode;
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
    ThreadNamePath(name): ThreadNamePath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let json = JsonBody::read_optional(&headers, body, &app.limits).await?;
    let idempotency =
        parse_idempotency_key(&headers, &format!("POST /api/v1/agent/runs/{name}/cancel"), &json.digest())?;
    let Request { mode } = json.into_object()?;
    let thread = agent_threads::find_named_thread(&app, &caller.user, &name).await?;
    let task_id = match app.engine.find_submission(&caller.user, idempotency.as_ref()).await? {
        Some(before) => before.task,
        None => {
            let Some(task_id) = app.engine.active_run(&caller.user, &thread).await? else {
                return Err(Problem::new(ErrorCode::AlreadyEnded, "nothing runs in this thread"));
            };
            let (engine, user) = (app.engine.clone(), caller.user.clone());
            let cancel = CancelCommand { task_id: task_id.clone(), mode };
            run_to_completion(async move { engine.cancel(&user, &thread, cancel, idempotency).await }).await?;
            task_id
        }
    };
    let names = json!({ "threadId": name, "runId": task_id });
    Ok((StatusCode::ACCEPTED, axum::Json(names)).into_response())
}
