//! Inboxes and runs.

use super::columns::{from_json_column, get_opt_u64, get_text, get_u64, to_json_column};
use super::transaction::{INSERT_QUEUED_RUN, WriteTransaction};
use super::write_task::TaskCost;
use super::{SqliteStore, checkpoints, client_results, log_size, page, questions, record_row};
use async_trait::async_trait;
use model::command::{ClientToolResult, Command};
use model::id::UNLISTED_THREAD_PREFIX;
use model::ports::validation;
use model::ports::{
    ApprovalAnswer, Checkpoint, IdempotencyKey, Inbox, InboxRow, InboxWriter, ListPage, RunFilter, RunRow,
    ScheduledWakeup, StoreError, StoreResult, Submission, SubmitError, Submitted, ThreadMode,
};
use model::seq::{Millis, Seq};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params_from_iter};

/// Idempotency keys are kept for a week; the documentation promises 24 hours.
const IDEMPOTENCY_KEY_TTL_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Number of submissions between two deletions of old keys.
const EXPIRE_EVERY: u32 = 256;
/// More than the size of a cancel as JSON.
const CANCEL_ROW_BYTES_MAX: u32 = 1_024;
/// Maximum number of keys that one deletion removes.
const EXPIRE_MAX: u32 = 1_000;

#[async_trait]
impl Inbox for SqliteStore {
    async fn find_submission(
        &self,
        owner: &UserId,
        idempotency: &IdempotencyKey,
    ) -> Result<Option<Submitted>, SubmitError> {
        let (owner, key) = (owner.clone(), idempotency.clone());
        let found = self.query(move |conn| find_submission(conn, &owner, &key)).await?;
        found.transpose()
    }

    async fn inbox_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: u64,
        rows_max: usize,
    ) -> StoreResult<Vec<InboxRow>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.readers.with_connection(move |conn| list_inbox(conn, &owner, &thread, after, rows_max)).await
    }

    async fn claimable_threads(&self) -> StoreResult<Vec<(UserId, ThreadId)>> {
        self.query(|conn| {
            let sql = "SELECT owner, id FROM threads WHERE num IN
                       (SELECT thread FROM runs WHERE ended_at IS NULL AND status <> 'paused'
                        UNION SELECT thread FROM inbox) ORDER BY num";
            let pair = |row: &Row<'_>| Ok((UserId::from(get_text(row, 0)?), ThreadId::from(get_text(row, 1)?)));
            conn.prepare_cached(sql)?.query_map((), pair)?.collect()
        })
        .await
    }

    async fn scheduled_wakeups(&self) -> StoreResult<Vec<ScheduledWakeup>> {
        self.query(|conn| {
            let sql = "SELECT owner, id, wake_at FROM threads WHERE wake_at IS NOT NULL ORDER BY wake_at, id";
            conn.prepare_cached(sql)?.query_map((), wakeup_row)?.collect()
        })
        .await
    }

    async fn runs(&self, owner: &UserId, filter: RunFilter, page: ListPage) -> StoreResult<Vec<RunRow>> {
        let owner = owner.clone();
        self.query(move |conn| list_runs(conn, &owner, &filter, &page)).await
    }

    async fn run(&self, owner: &UserId, run: &TaskId) -> StoreResult<Option<RunRow>> {
        let (owner, run) = (owner.clone(), run.clone());
        let read = self.query(move |conn| {
            let sql = format!("{SELECT_RUNS} WHERE r.owner = ?1 AND r.id = ?2");
            conn.prepare_cached(&sql)?.query_row((owner.as_str(), run.as_str()), run_row).optional()
        });
        let row = read.await?;
        // A commit is visible to readers before its records are in the index, and the caller may read these records
        // next.
        if let Some(row) = &row
            && row.last_seq.or(row.first_seq).is_some_and(|seq| self.index.is_behind(&row.thread, seq))
        {
            // The writer replies after it has updated the index. Damage is reported by reads of the log.
            let _head = self.check_head(&row.thread).await;
        }
        Ok(row)
    }

    async fn checkpoint(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<Checkpoint>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.query(move |conn| checkpoints::find_checkpoint(conn, &owner, &thread)).await
    }
}

#[async_trait]
impl InboxWriter for SqliteStore {
    async fn submit(&self, owner: &UserId, submission: Submission) -> Result<Submitted, SubmitError> {
        let owner = owner.clone();
        let is_cancel = matches!(submission.command, Command::Cancel(_));
        let cost = if is_cancel { TaskCost::Relief } else { TaskCost::ROW };
        let is_start = matches!(submission.command, Command::Start(_));
        // The semaphore is never closed.
        let _permit = if is_start { self.starts.acquire().await.ok() } else { None };
        self.call_writer(cost, move |tx| tx.submit(&owner, &submission)).await
    }
}

impl WriteTransaction<'_> {
    fn submit(&mut self, owner: &UserId, submission: &Submission) -> rusqlite::Result<Result<Submitted, SubmitError>> {
        if let Some(idempotency) = &submission.idempotency_key
            && let Some(known) = find_submission(self.conn, owner, idempotency)?
        {
            return Ok(known);
        }
        let thread = match self.resolve_thread(owner, submission)? {
            Ok(thread) => thread,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(known) = self.closed_question_result(owner, submission, thread)? {
            return Ok(known);
        }
        if let Some(error) = self.log_quota_error(owner, &submission.command)? {
            return Ok(Err(error));
        }
        let mut count = self.conn.prepare_cached("SELECT count(*) FROM inbox WHERE thread = ?1")?;
        let waiting = count.query_row([thread.unwrap_or_default()], |row| row.get::<_, u32>(0))? as usize;
        if waiting >= self.state.inbox_rows_max && !validation::bypasses_inbox_limit(&submission.command) {
            return Ok(Err(SubmitError::InboxFull(waiting)));
        }
        if let Command::Start(start) = &submission.command
            && self.run_exists(owner, &start.task_id)?
        {
            return Ok(Err(validation::id_taken_error(start.task_id.as_str())));
        }
        let row = self.insert_submission(owner, submission, thread)?;
        let lease = match (thread, &submission.command) {
            (None, _) => Some(self.claim_new_thread(&submission.thread, row.thread, owner)),
            (Some(num), Command::Start(_)) if waiting == 0 => self.claim_released(&submission.thread, num)?,
            (Some(_), _) => None,
        };
        Ok(Ok(lease.map_or(Submitted::Queued, |lease| Submitted::Claimed { lease, row: row.id })))
    }

    /// The number of the submission's thread; `None` when the submission creates it.
    fn resolve_thread(
        &self,
        owner: &UserId,
        submission: &Submission,
    ) -> rusqlite::Result<Result<Option<i64>, SubmitError>> {
        let found = page::find_thread(self.conn, &submission.thread)?;
        Ok(match (found, submission.thread_mode, &submission.command) {
            (Some((_, of)), ThreadMode::CreateNew, _) if of == owner.as_str() => Err(SubmitError::ThreadExists),
            (Some(_), ThreadMode::CreateNew, _) => Err(validation::id_taken_error(submission.thread.as_str())),
            (Some((num, of)), ThreadMode::MustExist, _) if of == owner.as_str() => Ok(Some(num)),
            (None, ThreadMode::CreateNew, Command::Start(_)) => Ok(None),
            (Some(_) | None, ..) => Err(SubmitError::Store(StoreError::ThreadNotFound)),
        })
    }

    fn log_quota_error(&self, owner: &UserId, command: &Command) -> rusqlite::Result<Option<SubmitError>> {
        let Some(max) = self.state.log_bytes_per_user_max.filter(|_| validation::adds_input(command)) else {
            return Ok(None);
        };
        let used = log_size::log_bytes(self.conn, &self.state.index, owner)?;
        Ok((used >= max).then_some(SubmitError::LogQuotaExceeded { used, max }))
    }

    fn run_exists(&self, owner: &UserId, run: &TaskId) -> rusqlite::Result<bool> {
        let mut select = self.conn.prepare_cached("SELECT 1 FROM runs WHERE owner = ?1 AND id = ?2")?;
        select.exists((owner.as_str(), run.as_str()))
    }

    /// The result of an answer to a question that is closed; `None` for an open question and for other commands.
    fn closed_question_result(
        &self,
        owner: &UserId,
        submission: &Submission,
        thread: Option<i64>,
    ) -> rusqlite::Result<Option<Result<Submitted, SubmitError>>> {
        let (Command::Answer(_), Some(thread)) = (&submission.command, thread) else { return Ok(None) };
        let cancelled_at = self.waiting_cancel(submission, thread)?;
        match validation::client_results(&submission.command) {
            [] => questions::closed_approval_result(self.conn, owner, submission, cancelled_at),
            results => {
                let digest =
                    |result: &ClientToolResult| client_results::find_digest(self.conn, thread, &result.call_id);
                let stored = results.iter().map(digest).collect::<rusqlite::Result<Vec<_>>>()?;
                Ok(validation::closed_calls_result(submission, &stored, cancelled_at.is_some()))
            }
        }
    }

    /// The time of a cancel that waits in the inbox and closes what the submission answers.
    fn waiting_cancel(&self, submission: &Submission, thread: i64) -> rusqlite::Result<Option<Millis>> {
        // The size is known without reading the row: cancels are small, and the inbox may hold large requests.
        let sql = "SELECT id, at, command FROM inbox WHERE thread = ?1 AND octet_length(command) <= ?2
                   AND command LIKE '{\"type\":\"cancel\"%' ORDER BY id";
        let mut select = self.conn.prepare_cached(sql)?;
        for row in select.query_map((thread, CANCEL_ROW_BYTES_MAX), inbox_row)? {
            let row = row?;
            if validation::is_cancel_of_question(&row.command, submission) {
                return Ok(Some(row.at));
            }
        }
        Ok(None)
    }

    fn insert_submission(
        &mut self,
        owner: &UserId,
        submission: &Submission,
        known: Option<i64>,
    ) -> rusqlite::Result<InsertedRow> {
        if let Some((key, decision, by)) = validation::approval_decision(&submission.command) {
            let answer = ApprovalAnswer { decision: decision.clone(), by, at: submission.at };
            questions::close_approval(self.conn, owner, key, &answer)?;
        }
        let at = submission.at.cast_signed();
        let thread = match known {
            Some(num) => num,
            None => {
                let sql = "INSERT INTO threads (id, owner, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)";
                self.conn.prepare_cached(sql)?.insert((submission.thread.as_str(), owner.as_str(), at))?
            }
        };
        if let Command::Start(start) = &submission.command {
            self.execute(INSERT_QUEUED_RUN, (start.task_id.as_str(), owner.as_str(), thread, &start.agent, at))?;
        }
        for result in validation::client_results(&submission.command) {
            let digest = validation::result_digest(result);
            client_results::close_call(self.conn, thread, &result.call_id, &digest)?;
        }
        let command = to_json_column(&submission.command)?;
        let mut insert = self.conn.prepare_cached("INSERT INTO inbox (thread, at, command) VALUES (?1, ?2, ?3)")?;
        let id = insert.insert((thread, at, command))?.cast_unsigned();
        if let Some(IdempotencyKey { key, request_digest: digest }) = &submission.idempotency_key {
            let task = submission.command.task_id().as_str();
            let sql = "INSERT OR REPLACE INTO idempotency VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            self.execute(sql, (owner.as_str(), key, digest, task, thread, at))?;
        }
        self.state.submissions_since_expiry += 1;
        if self.state.submissions_since_expiry >= EXPIRE_EVERY {
            self.state.submissions_since_expiry = 0;
            expire_idempotency_keys(self.conn)?;
        }
        Ok(InsertedRow { thread, id })
    }
}

/// A row of an inbox that this transaction has inserted.
struct InsertedRow {
    /// The number of its thread.
    thread: i64,
    id: u64,
}

const SELECT_RUNS: &str = "SELECT r.id, t.id, r.agent, r.status, r.first, r.last, r.created_at, r.ended_at
                           FROM runs r JOIN threads t ON t.num = r.thread";

fn list_inbox(
    conn: &Connection,
    owner: &UserId,
    thread: &ThreadId,
    after: u64,
    rows_max: usize,
) -> Result<Vec<InboxRow>, StoreError> {
    let fault = |error: rusqlite::Error| record_row::unavailable_error(&error);
    let snapshot = conn.unchecked_transaction().map_err(fault)?;
    let found = page::find_owned_thread(&snapshot, owner, thread).map_err(fault)?;
    let num = found.ok_or(StoreError::ThreadNotFound)?;
    let sql = "SELECT id, at, command FROM inbox WHERE thread = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
    let mut select = snapshot.prepare_cached(sql).map_err(fault)?;
    let rows = select.query_map((num, after.cast_signed(), limit), inbox_row);
    rows.and_then(Iterator::collect).map_err(fault)
}

fn list_runs(conn: &Connection, owner: &UserId, filter: &RunFilter, page: &ListPage) -> rusqlite::Result<Vec<RunRow>> {
    let mut sql = format!("{SELECT_RUNS} WHERE r.owner = ?");
    let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(owner.as_str().to_owned())];
    if let Some(thread) = &filter.thread {
        sql.push_str(" AND t.id = ?");
        values.push(Box::new(thread.as_str().to_owned()));
    } else {
        sql.push_str(" AND t.id < ?");
        values.push(Box::new(UNLISTED_THREAD_PREFIX));
    }
    if let Some(before) = &page.before {
        sql.push_str(" AND r.id < ?");
        values.push(Box::new(before.clone()));
    }
    if !filter.status.is_empty() {
        if !filter.status.iter().any(|status| status.is_terminal()) {
            // Selects the partial index on open runs.
            sql.push_str(" AND r.ended_at IS NULL");
        }
        sql.push_str(" AND r.status IN (");
        for (index, status) in filter.status.iter().enumerate() {
            sql.push_str(if index == 0 { "?" } else { ", ?" });
            values.push(Box::new(status.as_str()));
        }
        sql.push(')');
    }
    sql.push_str(" ORDER BY r.id DESC LIMIT ?");
    values.push(Box::new(i64::try_from(page.limit).unwrap_or(i64::MAX)));
    conn.prepare_cached(&sql)?.query_map(params_from_iter(values), run_row)?.collect()
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let status = TaskStatus::parse(&get_text(row, 3)?);
    let seq = |column: usize| get_opt_u64(row, column).map(|seq| seq.map(Seq));
    Ok(RunRow {
        id: TaskId::from(get_text(row, 0)?),
        thread: ThreadId::from(get_text(row, 1)?),
        agent: get_text(row, 2)?,
        status: status.ok_or_else(|| rusqlite::Error::InvalidColumnType(3, "status".to_owned(), Type::Text))?,
        first_seq: seq(4)?,
        last_seq: seq(5)?,
        created_at: get_u64(row, 6)?,
        ended_at: get_opt_u64(row, 7)?,
    })
}

fn inbox_row(row: &Row<'_>) -> rusqlite::Result<InboxRow> {
    Ok(InboxRow { id: get_u64(row, 0)?, at: get_u64(row, 1)?, command: from_json_column(&get_text(row, 2)?, 2)? })
}

fn wakeup_row(row: &Row<'_>) -> rusqlite::Result<ScheduledWakeup> {
    Ok(ScheduledWakeup {
        owner: UserId::from(get_text(row, 0)?),
        thread: ThreadId::from(get_text(row, 1)?),
        at: get_u64(row, 2)?,
    })
}

/// Deletes a batch of expired idempotency keys. Age is relative to the newest key: submissions carry their own time.
pub(crate) fn expire_idempotency_keys(conn: &Connection) -> rusqlite::Result<usize> {
    let newest: Option<i64> = conn.query_row("SELECT max(at) FROM idempotency", (), |row| row.get(0))?;
    let limit = newest.unwrap_or_default().saturating_sub_unsigned(IDEMPOTENCY_KEY_TTL_MS);
    let sql = "DELETE FROM idempotency WHERE (owner, key) IN
               (SELECT owner, key FROM idempotency WHERE at < ?1 LIMIT ?2)";
    conn.execute(sql, (limit, EXPIRE_MAX))
}

fn find_submission(
    conn: &Connection,
    owner: &UserId,
    idempotency: &IdempotencyKey,
) -> rusqlite::Result<Option<Result<Submitted, SubmitError>>> {
    let sql = "SELECT i.digest, i.task, t.id FROM idempotency i JOIN threads t ON t.num = i.thread
               WHERE i.owner = ?1 AND i.key = ?2";
    let mut select = conn.prepare_cached(sql)?;
    let found = select.query_row((owner.as_str(), &idempotency.key), |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    });
    Ok(found.optional()?.map(|(digest, task, thread)| {
        if digest == idempotency.request_digest {
            Ok(Submitted::Duplicate { task: TaskId::from(task), thread: ThreadId::from(thread) })
        } else {
            Err(SubmitError::KeyReused)
        }
    }))
}
