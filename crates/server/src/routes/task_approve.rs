//! `POST /v1/tasks/{id}/approvals/{key}`: decides an approval request, once.

use super::ApprovalPath;
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use gateway::approvals::decide_approval_of_task;
use gateway::native_json::ApprovalObject;
use gateway::start_run::check_request_size;
use model::event::{ApprovalDecision, ApprovalDecisionKind};
use model::json::JsonObject;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalRequest {
    decision: ApprovalDecisionKind,
    /// The reason. The model reads that of a rejection.
    #[serde(default)]
    message: Option<String>,
    /// The new arguments; with `edit` only.
    #[serde(default)]
    arguments: Option<JsonObject>,
    /// Approve later calls of this tool in this run without asking.
    #[serde(default)]
    always: bool,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ApprovalPath(task, key): ApprovalPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let json = JsonBody::read(&headers, body, &app.limits).await?;
    let idempotency =
        parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/approvals/{key}"), &json.digest())?;
    let decision = json.into_object::<ApprovalRequest>()?.into_decision()?;
    let approval = decide_approval_of_task(&app.gateway, &caller.user, &task, &key, decision, idempotency).await?;
    Ok(axum::Json(ApprovalObject::from(&approval)).into_response())
}

impl ApprovalRequest {
    fn into_decision(self) -> Result<ApprovalDecision, Problem> {
        let Self { decision: kind, message, arguments, always } = self;
        if (kind == ApprovalDecisionKind::Edit) != arguments.is_some() {
            return Err(Problem::invalid_field("arguments", "only the decision `edit` takes arguments"));
        }
        check_request_size(&(&message, &arguments))?;
        Ok(ApprovalDecision { kind, always, message, args: arguments.map(Value::Object) })
    }
}
