//! `POST /v1/tasks/{id}/approvals/{key}`: decides what a run waits for, once.

use super::{ApprovalPath, check_request_size, find_run_of_task, parse_idempotency_key, run_to_completion};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::{json_schema, native_api, query_params};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use model::error::ErrorCode;
use model::event::{ApprovalDecision, ApprovalDecisionKind, Initiator};
use model::json::JsonObject;
use model::ports::{ApprovalRow, RunRow, SubmitError};
use model::{ApprovalKey, UserId};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    decision: ApprovalDecisionKind,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    arguments: Option<JsonObject>,
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
) -> Result<axum::Json<Value>, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let json = JsonBody::read(&headers, body, &app.limits).await?;
    let idempotency =
        parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/approvals/{key}"), &json.digest())?;
    let decision = json.into_object::<Request>()?.into_decision()?;
    let run = find_run_of_task(&app, &caller.user, &task).await?;
    let question = find_approval(&app, &caller.user, &run, &key).await?;
    if app.engine.find_submission(&caller.user, idempotency.as_ref()).await?.is_none() {
        check_arguments(&app, &question, &decision)?;
        let (engine, user, run, key) = (app.engine.clone(), caller.user.clone(), run.clone(), key.clone());
        run_to_completion(async move { engine.decide_approval(&user, &run, key, decision, idempotency).await })
            .await?;
    }
    let question = find_approval(&app, &caller.user, &run, &key).await?;
    // Who says what a clock or a cancel had said already was still too late to say it.
    if question.answer.as_ref().is_some_and(|answer| answer.by != Initiator::User) {
        return Err(SubmitError::AlreadyDecided(Box::new(question)).into());
    }
    Ok(axum::Json(native_api::approval_json(&question)))
}

impl Request {
    fn into_decision(self) -> Result<ApprovalDecision, Problem> {
        let Self { decision: kind, message, arguments, always } = self;
        if (kind == ApprovalDecisionKind::Edit) != arguments.is_some() {
            return Err(Problem::invalid_field("arguments", "only the decision `edit` takes arguments"));
        }
        check_request_size(&(&message, &arguments))?;
        Ok(ApprovalDecision { kind, always, message, args: arguments.map(Value::Object) })
    }
}

/// The question, where it is one of this run.
async fn find_approval(app: &App, user: &UserId, run: &RunRow, key: &ApprovalKey) -> Result<ApprovalRow, Problem> {
    let found = app.engine.ports().directory.approval(user, key).await?;
    found.filter(|question| question.run_id == run.id).ok_or_else(|| SubmitError::ApprovalNotFound.into())
}

/// Other arguments have to be such as the tool takes. What is known of the tool today is enough for that: the run looks
/// again, at what it started with.
fn check_arguments(app: &App, question: &ApprovalRow, decision: &ApprovalDecision) -> Result<(), Problem> {
    let Some(arguments) = &decision.args else { return Ok(()) };
    let name = &question.action.name;
    let Some(tool) = app.engine.ports().definitions.tools.get(name) else { return Ok(()) };
    json_schema::validate_arguments(&tool.spec.parameters, arguments).map_err(|complaints| {
        let detail = format!("`arguments` do not fit `{name}`: {complaints}");
        Problem::new(ErrorCode::InvalidArguments, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use axum::response::IntoResponse as _;
    use model::event::ActionRequest;
    use model::{CallId, TaskId, ThreadId};

    /// In the moment before the clock's own answer is written down, nobody knows yet what follows.
    #[tokio::test]
    async fn a_question_whose_time_is_up_is_expired_until_the_clock_has_decided() {
        let run = TaskId::from("task_1");
        let question = ApprovalRow {
            key: ApprovalKey::from("apr_1"),
            thread_id: ThreadId::from("thr_1"),
            run_id: run.clone(),
            task_id: run,
            call_id: CallId::from("call_1"),
            action: ActionRequest { name: "order".to_owned(), args: Value::Null },
            requested_at: 1,
            expires_at: 2,
            answer: None,
        };
        let response = Problem::from(SubmitError::AlreadyDecided(Box::new(question))).into_response();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["code"], &body["approval"]["status"]), (&"expired".into(), &"pending".into()));
    }
}
