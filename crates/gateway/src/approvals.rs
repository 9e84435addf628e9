//! Decisions about tool calls that wait for approval, and answers to questions of tools.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::find_run_of_task;
use crate::run_to_completion::run_to_completion;
use crate::start_run::check_request_size;
use heavy_work::run_heavy;
use model::error::ErrorCode;
use model::event::{ApprovalDecision, ApprovalDecisionKind, Initiator, Question};
use model::id::is_valid_id;
use model::json::{ExactObject, ExactValue};
use model::ports::{ApprovalRow, IdempotencyKey, RunRow, SubmitError};
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use protocol::client_input::InvalidField;
use protocol::task::ARGUMENTS_MISPLACED;
use schema::ArgumentsError;
use serde_json::Value;

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
        check_decision(gateway, user, &approval, &decision, "arguments").await?;
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
    check_decision(gateway, user, &approval, &decision, "args").await?;
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

/// Validates a decision about an open request: the arguments of a call against the tool's current schema (the run validates
/// again, against the one it started with), the answer to a question against the question's.
pub(crate) async fn check_decision(
    gateway: &Gateway,
    user: &UserId,
    approval: &ApprovalRow,
    decision: &ApprovalDecision,
    field: &str,
) -> Result<(), Rejection> {
    if let Some(question) = &approval.question {
        return check_answer(gateway, user, question, decision, field).await;
    }
    let name = &approval.action.name;
    match decision.kind {
        ApprovalDecisionKind::Approve if decision.args.is_some() => {
            return Err(InvalidField::new(field, ARGUMENTS_MISPLACED).into());
        }
        ApprovalDecisionKind::Edit if approval.action.editable == Some(false) => {
            let detail = format!("`{name}` cannot be edited: the provider runs it as it asked. Approve or reject it.");
            return Err(Rejection::new(ErrorCode::InvalidArguments, detail));
        }
        _ => {}
    }
    let Some(arguments) = decision.args.clone() else { return Ok(()) };
    let definitions = gateway.engine.ports().definitions.get();
    let Some(tool) = definitions.tools.get(name) else { return Ok(()) };
    match validate(gateway, user, tool.spec.parameters.clone(), arguments).await? {
        // The run tells the model that the schema cannot be used.
        Ok(()) | Err(ArgumentsError::Schema(_)) => Ok(()),
        Err(error) => {
            let detail = format!("`{field}` do not fit `{name}`: {error}");
            Err(Rejection::new(ErrorCode::InvalidArguments, detail))
        }
    }
}

/// A question is answered with `approve` or declined with `reject`. An answer that does not fit leaves it open.
async fn check_answer(
    gateway: &Gateway,
    user: &UserId,
    question: &Question,
    decision: &ApprovalDecision,
    field: &str,
) -> Result<(), Rejection> {
    let refuse = |detail: String| Err(Rejection::new(ErrorCode::InvalidArguments, detail));
    if decision.kind == ApprovalDecisionKind::Edit {
        return refuse("This is a question: `approve` answers it, `reject` declines it.".to_owned());
    }
    if decision.always {
        return refuse("This is a question: each one is answered by itself, without `always`.".to_owned());
    }
    let schema = question.schema.clone().filter(|_| decision.kind == ApprovalDecisionKind::Approve);
    let Some(schema) = schema else { return Ok(()) };
    let answer = decision.args.clone().unwrap_or_else(|| ExactValue::Object(ExactObject::default()));
    match validate(gateway, user, schema, answer).await? {
        Ok(()) => Ok(()),
        Err(error) => refuse(format!("`{field}` do not fit the question: {error}")),
    }
}

async fn validate(
    gateway: &Gateway,
    user: &UserId,
    schema: Value,
    arguments: ExactValue,
) -> Result<Result<(), ArgumentsError>, Rejection> {
    let schemas = gateway.engine.schemas().clone();
    let validated = run_heavy(user, move || schemas.validate(&schema, &arguments.to_value())).await;
    validated.map_err(|_| Rejection::internal())
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
            question: None,
            answer: None,
        };
        let rejection = Rejection::from(SubmitError::AlreadyDecided(Box::new(approval)));
        assert_eq!(rejection.code, ErrorCode::Expired);
        assert_eq!(rejection.code.http_status(), 409);
        assert_eq!(rejection.extensions["approval"].to_value()["status"], "pending");
    }
}
