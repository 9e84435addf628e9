//! Decisions about tool calls that wait for approval.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::find_run_of_task;
use crate::run_to_completion::run_to_completion;
use crate::start_run::check_request_size;
use heavy_work::run_heavy;
use model::error::ErrorCode;
use model::event::{ApprovalDecision, ApprovalDecisionKind, Initiator};
use model::id::is_valid_id;
use model::ports::{ApprovalRow, IdempotencyKey, RunRow, SubmitError};
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use schema::ArgumentsError;

/// Decides an approval of a task, or of a run, and returns it with the decision.
pub async fn decide_approval_of_task(
    gateway: &Gateway,
    user: &UserId,
    task: &TaskId,
    key: &ApprovalKey,
    decision: ApprovalDecision,
    idempotency: Option<IdempotencyKey>,
) -> Result<ApprovalRow, Rejection> {
    let run = find_run_of_task(gateway, user, task).await?;
    let approval = find_approval_of_run(gateway, user, &run, key).await?;
    // Under the id of another agent of the run there is no such approval.
    if *task != run.id && *task != approval.task_id {
        return Err(SubmitError::ApprovalNotFound.into());
    }
    if gateway.engine.find_submission(user, idempotency.as_ref()).await?.is_none() {
        check_arguments(gateway, user, &approval, &decision, "arguments").await?;
        let (engine, user, run, key) = (gateway.engine.clone(), user.clone(), run.clone(), key.clone());
        run_to_completion(async move { engine.decide_approval(&user, &run, key, decision, idempotency).await }).await?;
    }
    let approval = find_approval_of_run(gateway, user, &run, key).await?;
    // A time-out or a cancellation came first, even if its decision is equal.
    if approval.answer.as_ref().is_some_and(|answer| answer.by != Initiator::User) {
        return Err(SubmitError::AlreadyDecided(Box::new(approval)).into());
    }
    Ok(approval)
}

/// Decides an approval of the user's: of this thread, if one is given.
pub(crate) async fn decide_approval(
    gateway: &Gateway,
    user: &UserId,
    thread: Option<&ThreadId>,
    key: ApprovalKey,
    decision: ApprovalDecision,
) -> Result<(), Rejection> {
    check_request_size(&decision)?;
    let directory = &gateway.engine.ports().directory;
    let approval = if is_valid_id(key.as_str()) { directory.approval(user, &key).await? } else { None };
    let approval = approval.filter(|approval| thread.is_none_or(|thread| approval.thread_id == *thread));
    let approval = approval.ok_or(SubmitError::ApprovalNotFound)?;
    let run = directory.run(user, &approval.run_id).await?.ok_or(SubmitError::ApprovalNotFound)?;
    check_arguments(gateway, user, &approval, &decision, "args").await?;
    let (engine, user) = (gateway.engine.clone(), user.clone());
    run_to_completion(async move { engine.decide_approval(&user, &run, key, decision, None).await }).await
}

async fn find_approval_of_run(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    key: &ApprovalKey,
) -> Result<ApprovalRow, Rejection> {
    let approval = gateway.engine.ports().directory.approval(user, key).await?;
    approval.filter(|approval| approval.run_id == run.id).ok_or_else(|| SubmitError::ApprovalNotFound.into())
}

/// Validates edited arguments against the tool's current schema. The run validates again, against the one it started with.
async fn check_arguments(
    gateway: &Gateway,
    user: &UserId,
    approval: &ApprovalRow,
    decision: &ApprovalDecision,
    field: &str,
) -> Result<(), Rejection> {
    let name = &approval.action.name;
    if decision.kind == ApprovalDecisionKind::Edit && approval.action.editable == Some(false) {
        let detail = format!("`{name}` cannot be edited: the provider runs it as it asked. Approve or reject it.");
        return Err(Rejection::new(ErrorCode::InvalidArguments, detail));
    }
    let Some(arguments) = decision.args.clone() else { return Ok(()) };
    let definitions = gateway.engine.ports().definitions.get();
    let Some(tool) = definitions.tools.get(name) else { return Ok(()) };
    let (schemas, parameters) = (gateway.engine.schemas().clone(), tool.spec.parameters.clone());
    let validated = run_heavy(user, move || schemas.validate(&parameters, &arguments.to_value())).await;
    match validated.map_err(|_| Rejection::internal())? {
        // The run tells the model that the schema cannot be used.
        Ok(()) | Err(ArgumentsError::Schema(_)) => Ok(()),
        Err(error) => {
            let detail = format!("`{field}` do not fit `{name}`: {error}");
            Err(Rejection::new(ErrorCode::InvalidArguments, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::CallId;
    use model::event::ActionRequest;

    /// Before the time-out's own decision is recorded, the outcome is open.
    #[test]
    fn an_approval_past_its_time_is_expired_until_the_timeout_decides() {
        let run = TaskId::from("task_1");
        let approval = ApprovalRow {
            key: ApprovalKey::from("apr_1"),
            thread_id: ThreadId::from("thr_1"),
            run_id: run.clone(),
            task_id: run,
            call_id: CallId::from("call_1"),
            action: ActionRequest { name: "order".to_owned(), ..ActionRequest::default() },
            requested_at: 1,
            expires_at: 2,
            answer: None,
        };
        let rejection = Rejection::from(SubmitError::AlreadyDecided(Box::new(approval)));
        assert_eq!(rejection.code, ErrorCode::Expired);
        assert_eq!(rejection.code.http_status(), 409);
        assert_eq!(rejection.extensions["approval"].to_value()["status"], "pending");
    }
}
