//! Submitting a command, in one transaction that holds the lock of the thread's row.

use super::connection::{OpenTransaction, Params, column, to_json, u64_column};
use super::{PostgresStore, inbox, questions, threads};
use model::command::{ClientToolResult, Command};
use model::ports::validation;
use model::ports::{
    ApprovalAnswer, IdempotencyKey, Lease, StoreError, StoreResult, Submission, SubmitError, Submitted, ThreadMode,
};
use model::seq::{Epoch, Millis, Seq};
use model::{TaskId, ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// How often a submission is tried that meets another one with the same key or the same new thread.
const ATTEMPTS_MAX: usize = 4;
/// More than the size of a cancel as JSON.
const CANCEL_ROW_BYTES_MAX: i32 = 1_024;
/// One in this many submissions deletes old idempotency keys.
const EXPIRE_EVERY: u64 = 256;

pub(super) const FIND_SUBMISSION: &str = "
    SELECT i.digest, i.task, t.id FROM headwater.idempotency i JOIN headwater.threads t ON t.num = i.thread
    WHERE i.owner = $1 AND i.key = $2";

/// The result of submitting a known key.
pub(super) fn known_submission(row: &Row, idempotency: &IdempotencyKey) -> Result<Submitted, SubmitError> {
    let (digest, task, thread): (&str, &str, &str) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
    if digest == idempotency.request_digest {
        Ok(Submitted::Duplicate { task: TaskId::from(task), thread: ThreadId::from(thread) })
    } else {
        Err(SubmitError::KeyReused)
    }
}

/// What a transaction has come to.
enum Attempt {
    Done(Submitted),
    /// Another submission came first with the same key or thread: its result decides.
    Conflict,
}

impl PostgresStore {
    pub(super) async fn submit_command(
        &self,
        owner: &UserId,
        submission: &Submission,
    ) -> Result<Submitted, SubmitError> {
        if self.space.is_full() && !matches!(submission.command, Command::Cancel(_)) {
            return Err(SubmitError::Store(StoreError::NoSpace));
        }
        for _ in 0..ATTEMPTS_MAX {
            let tx = OpenTransaction::begin(&self.pool).await?;
            match self.submit_in(&tx, owner, submission).await {
                Ok(Attempt::Done(submitted @ Submitted::Duplicate { .. })) => {
                    tx.rollback().await;
                    return Ok(submitted);
                }
                Ok(Attempt::Done(submitted)) => {
                    tx.commit().await?;
                    self.expire_keys_sometimes(&submitted).await;
                    return Ok(submitted);
                }
                Ok(Attempt::Conflict) => tx.rollback().await,
                Err(error) => {
                    tx.rollback().await;
                    return Err(error);
                }
            }
        }
        Err(SubmitError::Store(StoreError::Unavailable("the same request is being submitted elsewhere".to_owned())))
    }

    async fn expire_keys_sometimes(&self, submitted: &Submitted) {
        if let Submitted::Claimed { row, .. } = submitted
            && row % EXPIRE_EVERY == 0
            && let Err(error) = inbox::expire_idempotency_keys(&self.pool).await
        {
            tracing::debug!(%error, "old idempotency keys stay for now");
        }
    }

    async fn submit_in(
        &self,
        tx: &OpenTransaction<'_>,
        owner: &UserId,
        submission: &Submission,
    ) -> Result<Attempt, SubmitError> {
        if let Some(idempotency) = &submission.idempotency_key {
            let key = idempotency.key.as_bytes();
            let known = tx.query_opt(FIND_SUBMISSION, &[(&owner.as_str(), Type::TEXT), (&key, Type::BYTEA)]).await?;
            if let Some(row) = known {
                return known_submission(&row, idempotency).map(Attempt::Done);
            }
        }
        let thread = resolve_thread(tx, owner, submission).await?;
        if let Some(known) = closed_question_result(tx, owner, submission, thread).await? {
            return known.map(Attempt::Done);
        }
        self.check_log_quota(tx, owner, &submission.command).await?;
        if let Some(thread) = thread {
            self.check_inbox(tx, thread, &submission.command).await?;
        }
        if let Command::Start(start) = &submission.command {
            let sql = "SELECT 1 FROM headwater.runs WHERE owner = $1 AND id = $2";
            let params: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&start.task_id.as_str(), Type::TEXT)];
            if tx.query_opt(sql, params).await?.is_some() {
                return Err(validation::id_taken_error(start.task_id.as_str()));
            }
        }
        self.insert_submission(tx, owner, submission, thread).await
    }

    async fn check_log_quota(
        &self,
        tx: &OpenTransaction<'_>,
        owner: &UserId,
        command: &Command,
    ) -> Result<(), SubmitError> {
        let Some(max) = self.log_bytes_per_user_max.filter(|_| validation::adds_input(command)) else { return Ok(()) };
        let row = tx.query_one(threads::LOG_BYTES, &[(&owner.as_str(), Type::TEXT)]).await?;
        let used = u64_column(&row, 0)?;
        if used >= max { Err(SubmitError::LogQuotaExceeded { used, max }) } else { Ok(()) }
    }

    async fn check_inbox(&self, tx: &OpenTransaction<'_>, thread: i64, command: &Command) -> Result<(), SubmitError> {
        let sql = "SELECT count(*) FROM headwater.inbox WHERE thread = $1";
        let waiting = u64_column(&tx.query_one(sql, &[(&thread, Type::INT8)]).await?, 0)?;
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        let is_full = waiting >= self.inbox_rows_max && !validation::bypasses_inbox_limit(command);
        if is_full { Err(SubmitError::InboxFull(waiting)) } else { Ok(()) }
    }

    async fn insert_submission(
        &self,
        tx: &OpenTransaction<'_>,
        owner: &UserId,
        submission: &Submission,
        known: Option<i64>,
    ) -> Result<Attempt, SubmitError> {
        if let Some((key, decision, by)) = validation::approval_decision(&submission.command) {
            let answer = ApprovalAnswer { decision: decision.clone(), by, at: submission.at };
            questions::close_approval(tx, owner, key, &answer).await?;
        }
        let at = submission.at.cast_signed();
        let (thread, epoch) = match known {
            Some(num) => (num, None),
            None => match self.insert_thread(tx, owner, submission).await? {
                Some((num, epoch)) => (num, Some(epoch)),
                None => return Ok(Attempt::Conflict),
            },
        };
        if let Command::Start(start) = &submission.command {
            let sql = "INSERT INTO headwater.runs (id, owner, thread, agent, status, created_at)
                       VALUES ($1, $2, $3, $4, 'queued', $5) ON CONFLICT DO NOTHING";
            let params: Params<'_> = &[
                (&start.task_id.as_str(), Type::TEXT),
                (&owner.as_str(), Type::TEXT),
                (&thread, Type::INT8),
                (&start.agent, Type::TEXT),
                (&at, Type::INT8),
            ];
            if tx.execute(sql, params).await? == 0 {
                return Err(validation::id_taken_error(start.task_id.as_str()));
            }
        }
        questions::close_calls(tx, thread, validation::client_results(&submission.command)).await?;
        let command = to_json(&submission.command)?;
        let sql = "INSERT INTO headwater.inbox (thread, at, command) VALUES ($1, $2, $3) RETURNING id";
        let params: Params<'_> = &[(&thread, Type::INT8), (&at, Type::INT8), (&command, Type::TEXT)];
        let row = u64_column(&tx.query_one(sql, params).await?, 0)?;
        if !insert_idempotency_key(tx, owner, submission, thread).await? {
            return Ok(Attempt::Conflict);
        }
        Ok(Attempt::Done(match epoch {
            None => Submitted::Queued,
            Some(epoch) => Submitted::Claimed { lease: Lease { epoch, head: Seq::ZERO }, row },
        }))
    }

    /// Creates the thread, held by this node; `None` when another submission has created it meanwhile.
    async fn insert_thread(
        &self,
        tx: &OpenTransaction<'_>,
        owner: &UserId,
        submission: &Submission,
    ) -> StoreResult<Option<(i64, Epoch)>> {
        let sql = "INSERT INTO headwater.threads (id, owner, created_at, updated_at, node, epoch)
                   VALUES ($1, $2, $3, $3, $4, nextval('headwater.epochs')) ON CONFLICT DO NOTHING RETURNING num, epoch";
        let params: Params<'_> = &[
            (&submission.thread.as_str(), Type::TEXT),
            (&owner.as_str(), Type::TEXT),
            (&submission.at.cast_signed(), Type::INT8),
            (&self.node.as_str(), Type::TEXT),
        ];
        let row = tx.query_opt(sql, params).await?;
        row.map(|row| Ok((column(&row, 0)?, Epoch(u64_column(&row, 1)?)))).transpose()
    }
}

/// Returns false when another submission has used the key meanwhile.
async fn insert_idempotency_key(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    submission: &Submission,
    thread: i64,
) -> StoreResult<bool> {
    let Some(IdempotencyKey { key, request_digest }) = &submission.idempotency_key else { return Ok(true) };
    let sql = "INSERT INTO headwater.idempotency VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    let params: Params<'_> = &[
        (&owner.as_str(), Type::TEXT),
        (&key.as_bytes(), Type::BYTEA),
        (request_digest, Type::TEXT),
        (&submission.command.task_id().as_str(), Type::TEXT),
        (&thread, Type::INT8),
        (&submission.at.cast_signed(), Type::INT8),
    ];
    Ok(tx.execute(sql, params).await? == 1)
}

/// Locks the submission's thread and returns its number; `None` when the submission creates it.
async fn resolve_thread(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    submission: &Submission,
) -> Result<Option<i64>, SubmitError> {
    let sql = "SELECT num, owner FROM headwater.threads WHERE id = $1 FOR UPDATE";
    let found = tx.query_opt(sql, &[(&submission.thread.as_str(), Type::TEXT)]).await?;
    let found =
        found.map(|row| Ok::<_, StoreError>((column::<i64>(&row, 0)?, column::<String>(&row, 1)?))).transpose()?;
    match (found, submission.thread_mode, &submission.command) {
        (Some((_, of)), ThreadMode::CreateNew, _) if of == owner.as_str() => Err(SubmitError::ThreadExists),
        (Some(_), ThreadMode::CreateNew, _) => Err(validation::id_taken_error(submission.thread.as_str())),
        (Some((num, of)), ThreadMode::MustExist, _) if of == owner.as_str() => Ok(Some(num)),
        (None, ThreadMode::CreateNew, Command::Start(_)) => Ok(None),
        (Some(_) | None, ..) => Err(SubmitError::Store(StoreError::ThreadNotFound)),
    }
}

/// The result of an answer to a question that is closed; `None` for an open question and for other commands.
async fn closed_question_result(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    submission: &Submission,
    thread: Option<i64>,
) -> StoreResult<Option<Result<Submitted, SubmitError>>> {
    let (Command::Answer(_), Some(thread)) = (&submission.command, thread) else { return Ok(None) };
    let cancelled_at = waiting_cancel(tx, submission, thread).await?;
    match validation::client_results(&submission.command) {
        [] => closed_approval_result(tx, owner, submission, cancelled_at).await,
        results => {
            let calls: Vec<&str> = results.iter().map(|result: &ClientToolResult| result.call_id.as_str()).collect();
            let stored = questions::find_digests(tx, thread, &calls).await?;
            Ok(validation::closed_calls_result(submission, &stored, cancelled_at.is_some()))
        }
    }
}

async fn closed_approval_result(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    submission: &Submission,
    cancelled_at: Option<Millis>,
) -> StoreResult<Option<Result<Submitted, SubmitError>>> {
    let Some((key, decision, by)) = validation::approval_decision(&submission.command) else { return Ok(None) };
    let found = questions::find_approval(tx, owner, key).await?;
    let Some(question) = found.filter(|question| question.thread_id == submission.thread) else {
        return Ok(Some(Err(SubmitError::ApprovalNotFound)));
    };
    Ok(validation::closed_approval_result(&question, (decision, by), submission.at, cancelled_at))
}

/// The time of a cancel that waits in the inbox and closes what the submission answers.
async fn waiting_cancel(tx: &OpenTransaction<'_>, submission: &Submission, thread: i64) -> StoreResult<Option<Millis>> {
    // The size is known without reading the row: cancels are small, and the inbox may hold large requests.
    let sql = "SELECT id, at, command FROM headwater.inbox WHERE thread = $1 AND octet_length(command) <= $2
               AND command LIKE '{\"type\":\"cancel\"%' ORDER BY id";
    for row in tx.query(sql, &[(&thread, Type::INT8), (&CANCEL_ROW_BYTES_MAX, Type::INT4)]).await? {
        let row = inbox::inbox_row(&row)?;
        if validation::is_cancel_of_question(&row.command, submission) {
            return Ok(Some(row.at));
        }
    }
    Ok(None)
}
