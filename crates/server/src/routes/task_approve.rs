//! `POST /v1/tasks/{id}/approvals/{key}`: decides an approval request, once.

use super::ApprovalPath;
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::mcp_authorization::parse_mcp_credentials;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use gateway::approvals::decide_approval_of_task;
use gateway::mcp_credentials::keep_for_run;
use gateway::native_json::ApprovalObject;
use gateway::start_run::check_request_size;
use protocol::task::DecideApprovalRequest;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ApprovalPath(task, key): ApprovalPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let idempotency =
        parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/approvals/{key}"), || json.digest())?;
    let decision = json.into_object::<DecideApprovalRequest>()?.into_decision()?;
    check_request_size(&(&decision.message, &decision.args))?;
    keep_for_run(&app.gateway, &caller.user, &task, parse_mcp_credentials(&app, &headers)?).await?;
    let approval = decide_approval_of_task(&app.gateway, &caller.user, &task, &key, decision, idempotency).await?;
    Ok(axum::Json(ApprovalObject::from(&approval)).into_response())
}
