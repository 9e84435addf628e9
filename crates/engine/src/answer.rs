//! What people and clients say to a run that goes on or waits: stop, something more, a decision, a result.

use crate::engine::Engine;
use model::block::Part;
use model::command::{Answer, AnswerTo, Cancel, Command, Steer};
use model::event::{CancelMode, Decision, ErrorInfo, PendingKind};
use model::ports::{Idempotency, RunRow, StoreError, SubmitError};
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
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

/// What a tool gave that the client ran.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientResult {
    /// The call.
    pub call_id: CallId,
    /// What the model reads.
    pub content: Vec<Part>,
    /// What went wrong.
    pub error: Option<ErrorInfo>,
}

impl Engine {
    /// Stops a run.
    ///
    /// # Errors
    /// When the command could not be written down.
    pub async fn cancel(
        &self,
        user: &UserId,
        run: &RunRow,
        mode: CancelMode,
        idempotency: Option<Idempotency>,
    ) -> Result<(), SubmitError> {
        let cancel = Command::Cancel(Cancel { task_id: run.id.clone(), mode });
        self.submit(user, &run.thread, cancel, idempotency).await.map(|_| ())
    }

    /// Says something more to a run.
    ///
    /// # Errors
    /// When the command could not be written down.
    pub async fn say(
        &self,
        user: &UserId,
        thread: &ThreadId,
        task_id: TaskId,
        input: Vec<Part>,
        idempotency: Option<Idempotency>,
    ) -> Result<(), SubmitError> {
        let steer = Steer { task_id, input, otherwise: TaskId::mint(Uuid::now_v7()) };
        self.submit(user, thread, Command::Steer(steer), idempotency).await.map(|_| ())
    }

    /// Answers a question: written down first, so that it counts exactly once whoever crashes.
    ///
    /// # Errors
    /// When there is no such question, it was answered otherwise, or the answer could not be written down.
    pub async fn decide(
        &self,
        user: &UserId,
        run: &RunRow,
        (key, decision): (ApprovalKey, Decision),
        idempotency: Option<Idempotency>,
    ) -> Result<(), SubmitError> {
        let answer = Answer { task_id: run.id.clone(), to: AnswerTo::Approval { key, decision } };
        self.submit(user, &run.thread, Command::Answer(answer), idempotency).await.map(|_| ())
    }

    /// Gives a run what the tools gave that its client ran. All of them have to be what it waits for.
    ///
    /// # Errors
    /// When the run does not wait for one of them, or they could not be written down.
    pub async fn give_results(
        &self,
        user: &UserId,
        run: &RunRow,
        results: Vec<ClientResult>,
        idempotency: Option<Idempotency>,
    ) -> Result<(), AnswerError> {
        let waits = self.waiting_calls(user, &run.id).await?;
        if let Some(stray) = results.iter().find(|result| !waits.contains(&result.call_id)) {
            return Err(AnswerError::NotPending(stray.call_id.clone()));
        }
        let written = self.write_results(user, run, results, idempotency).await;
        // Once for all of them, so that they are one input; also for those that were written when one was not.
        self.wake(user, &run.thread);
        Ok(written?)
    }

    async fn write_results(
        &self,
        user: &UserId,
        run: &RunRow,
        results: Vec<ClientResult>,
        mut idempotency: Option<Idempotency>,
    ) -> Result<(), SubmitError> {
        for ClientResult { call_id, content, error } in results {
            let to = AnswerTo::ClientTool { call_id, content, error };
            let command = Command::Answer(Answer { task_id: run.id.clone(), to });
            // The key stands for the request: it is kept with its first row.
            self.write_down(user, &run.thread, command, idempotency.take()).await?;
        }
        Ok(())
    }

    async fn waiting_calls(&self, user: &UserId, run: &TaskId) -> Result<Vec<CallId>, StoreError> {
        let object = self.object(user, run).await?;
        let pending = object.map(|object| object.pending).unwrap_or_default();
        let of_client = pending.into_iter().filter(|pending| pending.kind == PendingKind::ClientTool);
        Ok(of_client.map(|pending| pending.call_id).collect())
    }
}
