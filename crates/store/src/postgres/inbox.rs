//! Inboxes, runs and checkpoints.

use super::PostgresStore;
use super::connection::{column, json_column, limit_param, opt_u64_column, u64_column};
use super::pool::DatabasePool;
use super::submission;
use async_trait::async_trait;
use model::id::UNLISTED_THREAD_PREFIX;
use model::ports::{
    Checkpoint, CheckpointRun, IdempotencyKey, Inbox, InboxRow, InboxWriter, ListPage, RunFilter, RunRow,
    ScheduledWakeup, StoreError, StoreResult, Submission, SubmitError, Submitted,
};
use model::seq::Seq;
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// Idempotency keys are kept for a week; the documentation promises 24 hours.
const IDEMPOTENCY_KEY_TTL_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Maximum number of keys that one deletion removes.
const EXPIRE_MAX: i64 = 1_000;

const SELECT_RUNS: &str = "SELECT r.id, t.id, r.agent, r.status, r.first_seq, r.last_seq, r.created_at, r.ended_at
                           FROM headwater.runs r JOIN headwater.threads t ON t.num = r.thread";

#[async_trait]
impl Inbox for PostgresStore {
    async fn find_submission(
        &self,
        owner: &UserId,
        idempotency: &IdempotencyKey,
    ) -> Result<Option<Submitted>, SubmitError> {
        let key = idempotency.key.as_bytes();
        let params: super::connection::Params<'_> = &[(&owner.as_str(), Type::TEXT), (&key, Type::BYTEA)];
        let row = self.pool.query_opt(submission::FIND_SUBMISSION, params).await?;
        row.map(|row| submission::known_submission(&row, idempotency)).transpose()
    }

    async fn inbox_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: u64,
        rows_max: usize,
    ) -> StoreResult<Vec<InboxRow>> {
        // The thread's row without an inbox row if there are none.
        let sql = "SELECT i.id, i.at, i.command FROM headwater.threads t LEFT JOIN LATERAL
                   (SELECT * FROM headwater.inbox WHERE thread = t.num AND id > $3 ORDER BY id LIMIT $4) i ON true
                   WHERE t.id = $1 AND t.owner = $2 ORDER BY i.id";
        let params: super::connection::Params<'_> = &[
            (&thread.as_str(), Type::TEXT),
            (&owner.as_str(), Type::TEXT),
            (&after.cast_signed(), Type::INT8),
            (&limit_param(rows_max), Type::INT8),
        ];
        let rows = self.pool.query(sql, params).await?;
        if rows.is_empty() {
            return Err(StoreError::ThreadNotFound);
        }
        rows.iter().filter(|row| column::<Option<i64>>(row, 0).is_ok_and(|id| id.is_some())).map(inbox_row).collect()
    }

    async fn claimable_threads(&self) -> StoreResult<Vec<(UserId, ThreadId)>> {
        let sql = "SELECT owner, id FROM headwater.threads t WHERE num IN
                   (SELECT thread FROM headwater.runs WHERE ended_at IS NULL AND status <> 'paused'
                    UNION SELECT thread FROM headwater.inbox)
                   AND NOT EXISTS (SELECT 1 FROM headwater.nodes n WHERE n.id = t.node AND n.id <> $1
                                   AND n.lease_until > clock_timestamp())
                   ORDER BY num";
        let rows = self.pool.query(sql, &[(&self.node.as_str(), Type::TEXT)]).await?;
        let pair = |row: &Row| Ok((UserId::from(column::<&str>(row, 0)?), ThreadId::from(column::<&str>(row, 1)?)));
        rows.iter().map(pair).collect()
    }

    async fn scheduled_wakeups(&self) -> StoreResult<Vec<ScheduledWakeup>> {
        let sql = "SELECT owner, id, wake_at FROM headwater.threads WHERE wake_at IS NOT NULL ORDER BY wake_at, id";
        let rows = self.pool.query(sql, &[]).await?;
        let wakeup = |row: &Row| {
            Ok(ScheduledWakeup {
                owner: UserId::from(column::<&str>(row, 0)?),
                thread: ThreadId::from(column::<&str>(row, 1)?),
                at: u64_column(row, 2)?,
            })
        };
        rows.iter().map(wakeup).collect()
    }

    async fn runs(&self, owner: &UserId, filter: RunFilter, page: ListPage) -> StoreResult<Vec<RunRow>> {
        let thread = filter.thread.as_ref().map(ThreadId::as_str);
        let status: Vec<&str> = filter.status.iter().map(|status| status.as_str()).collect();
        let status = (!status.is_empty()).then_some(status);
        let sql = format!(
            "{SELECT_RUNS} WHERE r.owner = $1 AND (t.id = $2 OR ($2::text IS NULL AND t.id < '{UNLISTED_THREAD_PREFIX}')) AND ($3::text IS NULL OR r.id < $3)
             AND ($4::text[] IS NULL OR r.status = ANY($4)) ORDER BY r.id DESC LIMIT $5"
        );
        let params: [(&(dyn ToSql + Sync), Type); 5] = [
            (&owner.as_str(), Type::TEXT),
            (&thread, Type::TEXT),
            (&page.before, Type::TEXT),
            (&status, Type::TEXT_ARRAY),
            (&limit_param(page.limit), Type::INT8),
        ];
        self.pool.query(&sql, &params).await?.iter().map(run_row).collect()
    }

    async fn run(&self, owner: &UserId, run: &TaskId) -> StoreResult<Option<RunRow>> {
        let sql = format!("{SELECT_RUNS} WHERE r.owner = $1 AND r.id = $2");
        let row = self.pool.query_opt(&sql, &[(&owner.as_str(), Type::TEXT), (&run.as_str(), Type::TEXT)]).await?;
        row.as_ref().map(run_row).transpose()
    }

    async fn checkpoint(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<Checkpoint>> {
        let sql = "SELECT c.seq, c.body, r.idx, r.body FROM headwater.threads t
                   JOIN headwater.checkpoints c ON c.thread = t.num
                   LEFT JOIN headwater.checkpoint_runs r ON r.thread = t.num
                   WHERE t.id = $1 AND t.owner = $2 ORDER BY r.idx";
        let rows = self.pool.query(sql, &[(&thread.as_str(), Type::TEXT), (&owner.as_str(), Type::TEXT)]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let mut checkpoint = Checkpoint { seq: Seq(u64_column(first, 0)?), body: column(first, 1)?, runs: Vec::new() };
        for row in &rows {
            if let (Some(index), Some(body)) = (opt_u64_column(row, 2)?, column(row, 3)?) {
                checkpoint.runs.push(CheckpointRun { index, body });
            }
        }
        Ok(Some(checkpoint))
    }
}

#[async_trait]
impl InboxWriter for PostgresStore {
    async fn submit(&self, owner: &UserId, submission: Submission) -> Result<Submitted, SubmitError> {
        self.submit_command(owner, &submission).await
    }
}

pub(super) fn inbox_row(row: &Row) -> StoreResult<InboxRow> {
    Ok(InboxRow { id: u64_column(row, 0)?, at: u64_column(row, 1)?, command: json_column(column(row, 2)?)? })
}

fn run_row(row: &Row) -> StoreResult<RunRow> {
    let status = TaskStatus::parse(column(row, 3)?);
    let seq = |index: usize| opt_u64_column(row, index).map(|seq| seq.map(Seq));
    Ok(RunRow {
        id: TaskId::from(column::<&str>(row, 0)?),
        thread: ThreadId::from(column::<&str>(row, 1)?),
        agent: column(row, 2)?,
        status: status.ok_or_else(|| StoreError::Unavailable("a run has an unknown status".to_owned()))?,
        first_seq: seq(4)?,
        last_seq: seq(5)?,
        created_at: u64_column(row, 6)?,
        ended_at: opt_u64_column(row, 7)?,
    })
}

/// Deletes a batch of expired idempotency keys. Age is relative to the newest key: submissions carry their own time.
pub(super) async fn expire_idempotency_keys(pool: &DatabasePool) -> StoreResult<()> {
    let sql = "DELETE FROM headwater.idempotency WHERE ctid IN
               (SELECT ctid FROM headwater.idempotency
                WHERE at < (SELECT max(at) FROM headwater.idempotency) - $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";
    pool.execute(sql, &[(&IDEMPOTENCY_KEY_TTL_MS, Type::INT8), (&EXPIRE_MAX, Type::INT8)]).await.map(drop)
}
