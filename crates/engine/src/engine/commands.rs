//! Commands to a run that has started: cancel, steer, approval decisions and client results.

use super::Engine;
use model::command::{
    AnswerBody, AnswerCommand, CancelCommand, ClientToolResult, Command, RequestUpdate, SteerCommand,
};
use model::content::ContentPart;
use model::event::{ApprovalDecision, ClientIds, Initiator, PendingKind, PendingRequest};
use model::fold::RunFold;
use model::ports::{IdempotencyKey, RunRow, StoreError, Submission, SubmitError, Submitted, ThreadMode};
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use serde_json::Value;
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("the run does not wait for a result of `{0}`")]
    NotPending(CallId),
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the request that brings answers says besides.
#[derive(Clone, Debug, Default)]
pub struct AnsweringRequest {
    pub request_echo: Option<Value>,
    pub update: Option<Box<RequestUpdate>>,
    /// The ids that the client uses for the run from here on.
    pub client: Option<ClientIds>,
}

impl Engine {
    /// Cancels a task and all tasks below it. The root task of a run is the whole run.
    pub async fn cancel(
        &self,
        user: &UserId,
        thread: &ThreadId,
        cancel: CancelCommand,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), SubmitError> {
        self.submit(user, thread, Command::Cancel(cancel), idempotency).await.map(|_| ())
    }

    /// Adds input to a run. If the run ends before it can read the input, the input starts the next run.
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

    /// Answers an approval request. The decision is stored first, so that it takes effect exactly once, also after a crash.
    pub async fn decide_approval(
        &self,
        user: &UserId,
        run: &RunRow,
        key: ApprovalKey,
        decision: ApprovalDecision,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), SubmitError> {
        let asking = self.ports().directory.approval(user, &key).await?.map(|approval| approval.task_id);
        let body = AnswerBody::Approval { key, decision, by: Initiator::User };
        // Only a sub-agent can be cancelled apart from its run.
        let task_path = match asking {
            Some(task) if task != run.id => machine::answered_tasks(&self.fold_open_run(user, run).await?, &body),
            Some(_) | None => Vec::new(),
        };
        let answer = AnswerCommand { task_id: run.id.clone(), body, request_echo: None, update: None, client: None };
        let submitted = self.submit_answer(user, run, answer, task_path, idempotency).await;
        let is_expired = matches!(&submitted, Err(SubmitError::AlreadyDecided(row)) if row.answer.is_none());
        if submitted.is_ok() || is_expired {
            // What is too late for a decision has timed out, and the run goes on: the clock may have been set forward.
            self.wake_executor(user, &run.thread);
        }
        submitted.map(|_| ())
    }

    /// Submits results of tools that the client ran. The run has to wait for all of them; they are one command and take
    /// effect together. Results that were submitted before are accepted again and change nothing.
    pub async fn submit_client_results(
        &self,
        user: &UserId,
        run: &RunRow,
        results: Vec<ClientToolResult>,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), AnswerError> {
        let fold = self.fold_open_run(user, run).await?;
        let pending = machine::pending_requests(&fold);
        let is_pending = |call: &CallId| {
            pending.iter().any(|pending| pending.kind == PendingKind::ClientTool && pending.call_id == *call)
        };
        if let Some(unexpected) = results.iter().find(|result| !is_pending(&result.call_id)) {
            // The same request, sent twice, may be why the run does not wait any more.
            let is_repeated = self.find_submission(user, idempotency.as_ref()).await?.is_some()
                || self.have_client_results(user, &run.thread, &results).await?;
            return if is_repeated { Ok(()) } else { Err(AnswerError::NotPending(unexpected.call_id.clone())) };
        }
        let body = AnswerBody::ClientTools { results };
        let task_path = machine::answered_tasks(&fold, &body);
        let answer = AnswerCommand { task_id: run.id.clone(), body, request_echo: None, update: None, client: None };
        match self.submit_answer(user, run, answer, task_path, idempotency).await {
            Ok(_) => {}
            Err(SubmitError::CallClosed(call)) => return Err(AnswerError::NotPending(call)),
            Err(error) => return Err(error.into()),
        }
        self.wake_executor(user, &run.thread);
        Ok(())
    }

    async fn have_client_results(
        &self,
        user: &UserId,
        thread: &ThreadId,
        results: &[ClientToolResult],
    ) -> Result<bool, StoreError> {
        for result in results {
            if !self.ports().directory.has_client_result(user, thread, result).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Answers several requests of a run at once: the run sees none of the answers before all are stored. The caller leaves
    /// out answers that the run does not wait for. After an error, the answers before the failed one are stored.
    pub async fn submit_answers(
        &self,
        user: &UserId,
        run: &RunRow,
        answers: Vec<AnswerBody>,
        request: AnsweringRequest,
        mut idempotency: Option<IdempotencyKey>,
    ) -> Result<(), SubmitError> {
        let fold = self.fold_open_run(user, run).await?;
        for body in answers {
            let task_path = machine::answered_tasks(&fold, &body);
            let AnsweringRequest { request_echo, update, client } = request.clone();
            let client = client.map(Box::new);
            let answer = AnswerCommand { task_id: run.id.clone(), body, request_echo, update, client };
            let submitted = self.submit_answer(user, run, answer, task_path, idempotency.take()).await;
            if let Err(error) = submitted {
                // The answers before it are stored and must not wait for the next command.
                self.wake_executor(user, &run.thread);
                return Err(error);
            }
        }
        self.wake_executor(user, &run.thread);
        Ok(())
    }

    /// Stores an answer without waking the actor.
    async fn submit_answer(
        &self,
        user: &UserId,
        run: &RunRow,
        answer: AnswerCommand,
        task_path: Vec<TaskId>,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        let (thread, command) = (run.thread.clone(), Command::Answer(answer));
        let submission = self.new_submission(thread, ThreadMode::MustExist, command, idempotency);
        self.write_submission(user, Submission { task_path, ..submission }).await
    }

    /// What a run waits for, also while other tasks of it run.
    pub async fn pending(&self, user: &UserId, run: &RunRow) -> Result<Vec<PendingRequest>, StoreError> {
        Ok(machine::pending_requests(&self.fold_open_run(user, run).await?))
    }

    /// The calls that one task of a run has made.
    pub async fn calls_of_task(&self, user: &UserId, run: &RunRow, task: &TaskId) -> Result<Vec<CallId>, StoreError> {
        let Some(first) = run.first_seq else { return Ok(Vec::new()) };
        let last = run.last_seq.filter(|_| run.status.is_terminal());
        let fold = self.fold_run(user, &run.thread, first, last).await?;
        let calls = fold.task(task).into_iter().flat_map(|task| task.calls());
        Ok(calls.map(|(_, call)| call.call_id.clone()).collect())
    }

    /// The fold of a run; empty if it has not started, or has ended and asks nothing any more.
    async fn fold_open_run(&self, user: &UserId, run: &RunRow) -> Result<RunFold, StoreError> {
        match run.first_seq.filter(|_| !run.status.is_terminal()) {
            Some(first) => self.fold_run(user, &run.thread, first, None).await,
            None => Ok(RunFold::default()),
        }
    }
}
