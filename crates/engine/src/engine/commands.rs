//! What people and clients say to a run that goes on or waits: stop, something more, a decision, a result.

use super::Engine;
use model::command::{AnswerBody, AnswerCommand, CancelCommand, ClientToolResult, Command, SteerCommand};
use model::content::ContentPart;
use model::event::{ApprovalDecision, Initiator, PendingKind, PendingRequest};
use model::ports::{IdempotencyKey, RunRow, StoreError, SubmitError};
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use serde_json::Value;
use uuid::Uuid;

/// Why an answer was refused. `server::problem` gives each its status and code.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The run does not wait for this call.
    #[error("the run does not wait for a result of `{0}`")]
    NotPending(CallId),
    /// It was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The log could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Stops a task with all below it; a run's root is the run.
    ///
    /// # Errors
    /// When the command could not be written down.
    pub async fn cancel(
        &self,
        user: &UserId,
        thread: &ThreadId,
        cancel: CancelCommand,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), SubmitError> {
        self.submit(user, thread, Command::Cancel(cancel), idempotency).await.map(|_| ())
    }

    /// Says something more to a run.
    ///
    /// # Errors
    /// When the command could not be written down.
    pub async fn steer(
        &self,
        user: &UserId,
        thread: &ThreadId,
        task_id: TaskId,
        input: Vec<ContentPart>,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), SubmitError> {
        let steer = SteerCommand { task_id, input, fallback_task_id: TaskId::from_uuid(Uuid::now_v7()) };
        self.submit(user, thread, Command::Steer(steer), idempotency).await.map(|_| ())
    }

    /// Answers a question: written down first, so that it counts exactly once whoever crashes.
    ///
    /// # Errors
    /// When there is no such question, it was answered otherwise, or the answer could not be written down.
    pub async fn decide_approval(
        &self,
        user: &UserId,
        run: &RunRow,
        key: ApprovalKey,
        decision: ApprovalDecision,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), SubmitError> {
        let body = AnswerBody::Approval { key, decision, by: Initiator::User };
        let answer = AnswerCommand { task_id: run.id.clone(), body, request_echo: None };
        self.submit(user, &run.thread, Command::Answer(answer), idempotency).await.map(|_| ())
    }

    /// Submits results of tools that the client ran. The run has to wait for all of them; they are one command and take
    /// effect together.
    ///
    /// # Errors
    /// When the run does not wait for one of them, or the command could not be stored.
    pub async fn submit_client_results(
        &self,
        user: &UserId,
        run: &RunRow,
        results: Vec<ClientToolResult>,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), AnswerError> {
        let pending = self.pending_client_calls(user, run).await?;
        if let Some(unexpected) = results.iter().find(|result| !pending.contains(&result.call_id)) {
            // The same request, sent twice, may be why the run does not wait any more.
            return match self.find_submission(user, idempotency.as_ref()).await? {
                Some(_) => Ok(()),
                None => Err(AnswerError::NotPending(unexpected.call_id.clone())),
            };
        }
        let body = AnswerBody::ClientTools { results };
        let answer = AnswerCommand { task_id: run.id.clone(), body, request_echo: None };
        self.submit(user, &run.thread, Command::Answer(answer), idempotency).await?;
        Ok(())
    }

    /// Answers several things that a run waits for, in one breath: nobody acts on the first before the last is written down.
    /// What it does not wait for has to be left out.
    ///
    /// # Errors
    /// When one of them could not be written down; those before it were.
    pub async fn submit_answers(
        &self,
        user: &UserId,
        run: &RunRow,
        answers: Vec<AnswerBody>,
        echo: Option<Value>,
        mut idempotency: Option<IdempotencyKey>,
    ) -> Result<(), SubmitError> {
        for to in answers {
            let answer = AnswerCommand { task_id: run.id.clone(), body: to, request_echo: echo.clone() };
            let written =
                self.submit_without_wake(user, &run.thread, Command::Answer(answer), idempotency.take()).await;
            if let Err(error) = written {
                // Whoever answered elsewhere meanwhile has woken the run, or it sleeps on.
                self.wake_thread(user, &run.thread);
                return Err(error);
            }
        }
        self.wake_thread(user, &run.thread);
        Ok(())
    }

    /// What a run waits for, also while something else of it goes on.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn pending(&self, user: &UserId, run: &RunRow) -> Result<Vec<PendingRequest>, StoreError> {
        let Some(first) = run.first_seq.filter(|_| !run.status.is_terminal()) else { return Ok(Vec::new()) };
        Ok(machine::pending_requests(&self.fold_run(user, &run.thread, first, None).await?))
    }

    /// The calls whose results the run waits for, also while something else of it goes on.
    async fn pending_client_calls(&self, user: &UserId, run: &RunRow) -> Result<Vec<CallId>, StoreError> {
        let pending = self.pending(user, run).await?.into_iter();
        let of_client = pending.filter(|pending| pending.kind == PendingKind::ClientTool);
        Ok(of_client.map(|pending| pending.call_id).collect())
    }
}
