//! `POST /api/v1/agent/runs/{thread}/cancel`: cancels the active run of a thread. A queued run starts then.

use super::AgentRunNames;
use super::ThreadNamePath;
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use gateway::task_commands::cancel_active_run;
use gateway::thread_names::find_named_thread;
use model::ports::AliasKind;
use protocol::task::CancelRequest;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(name): ThreadNamePath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let json = JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?;
    let idempotency =
        parse_idempotency_key(&headers, &format!("POST /api/v1/agent/runs/{name}/cancel"), || json.digest())?;
    let CancelRequest { mode } = json.into_object()?;
    let thread = find_named_thread(&app.gateway, &caller.user, AliasKind::AgentRun, &name).await?;
    let run = cancel_active_run(&app.gateway, &caller.user, thread, mode, idempotency).await?;
    let names = AgentRunNames { run_id: &run, thread_id: &name };
    Ok((StatusCode::ACCEPTED, axum::Json(names)).into_response())
}
