//! The directory: what only reads goes to a reader, what changes something to the writer.

use super::aliases::{self, AliasKey};
use super::shares::{self, ShareKey};
use super::submit::find_submission;
use super::write_op::WriteOp;
use super::{SqliteStore, approvals, record_row, spend};
use model::command::Command;
use model::ports::{
    AccessKeyRow, AliasRow, ApprovalRow, BoxFuture, Checkpoint, Day, Directory, IdempotencyKey, InboxRow, ListPage,
    RunFilter, RunRow, ScheduledWakeup, ShareRow, Spend, StoreError, Submission, SubmitError, Submitted, ThreadRow,
};
use model::seq::{Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params_from_iter};

impl Directory for SqliteStore {
    fn submit<'a>(
        &'a self,
        owner: &'a UserId,
        submission: Submission,
    ) -> BoxFuture<'a, Result<Submitted, SubmitError>> {
        let submission = Box::new(submission);
        Box::pin(self.call_writer(move |reply| WriteOp::Submit { owner: owner.clone(), submission, reply }))
    }

    fn find_submission<'a>(
        &'a self,
        owner: &'a UserId,
        idempotency: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<Submitted>, SubmitError>> {
        let (owner, key) = (owner.clone(), idempotency.clone());
        Box::pin(async move {
            let found = self.readers.query(move |conn| find_submission(conn, &owner, &key)).await?;
            found.transpose()
        })
    }

    fn inbox<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<InboxRow>, StoreError>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        Box::pin(self.readers.with_connection(move |conn| list_inbox(conn, &owner, &thread)))
    }

    fn claimable_threads(&self) -> BoxFuture<'_, Result<Vec<(UserId, ThreadId)>, StoreError>> {
        Box::pin(self.readers.query(|conn| {
            let sql = "SELECT owner, id FROM threads WHERE num IN
                       (SELECT thread FROM runs WHERE ended_at IS NULL AND status <> 'paused'
                        UNION SELECT thread FROM inbox) ORDER BY num";
            let pair = |row: &Row<'_>| Ok((UserId::from(get_text(row, 0)?), ThreadId::from(get_text(row, 1)?)));
            conn.prepare_cached(sql)?.query_map((), pair)?.collect()
        }))
    }

    fn threads<'a>(&'a self, owner: &'a UserId, page: ListPage) -> BoxFuture<'a, Result<Vec<ThreadRow>, StoreError>> {
        let owner = owner.clone();
        Box::pin(self.readers.query(move |conn| {
            let sql = "SELECT id, created_at, updated_at FROM threads
                       WHERE owner = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
            let before = page.before.as_deref().unwrap_or(LAST_ID);
            let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
            conn.prepare_cached(sql)?.query_map((owner.as_str(), before, limit), thread_row)?.collect()
        }))
    }

    fn thread<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Option<ThreadRow>, StoreError>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        Box::pin(self.readers.query(move |conn| {
            let sql = "SELECT id, created_at, updated_at FROM threads WHERE id = ?1 AND owner = ?2";
            conn.prepare_cached(sql)?.query_row((thread.as_str(), owner.as_str()), thread_row).optional()
        }))
    }

    fn delete_thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.call_writer(move |reply| WriteOp::DeleteThread {
            owner: owner.clone(),
            thread: thread.clone(),
            reply,
        }))
    }

    fn runs<'a>(
        &'a self,
        owner: &'a UserId,
        filter: RunFilter,
        page: ListPage,
    ) -> BoxFuture<'a, Result<Vec<RunRow>, StoreError>> {
        let owner = owner.clone();
        Box::pin(self.readers.query(move |conn| list_runs(conn, &owner, &filter, &page)))
    }

    fn run<'a>(&'a self, owner: &'a UserId, run: &'a TaskId) -> BoxFuture<'a, Result<Option<RunRow>, StoreError>> {
        let (owner, run) = (owner.clone(), run.clone());
        let read = self.readers.query(move |conn| {
            let sql = format!("{SELECT_RUNS} WHERE r.owner = ?1 AND r.id = ?2");
            conn.prepare_cached(&sql)?.query_row((owner.as_str(), run.as_str()), run_row).optional()
        });
        Box::pin(async move {
            let row = read.await?;
            // A commit can be read a moment before the index knows its records: whoever has the row may ask for them.
            if let Some(row) = &row
                && row.last_seq.or(row.first_seq).is_some_and(|seq| self.index.is_behind(&row.thread, seq))
            {
                // What it says about the thread is for those who read the log; here its turn is what counts.
                let _head = self.call_writer(|reply| WriteOp::CheckHead { thread: row.thread.clone(), reply }).await;
            }
            Ok(row)
        })
    }

    fn checkpoint<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Option<Checkpoint>, StoreError>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        Box::pin(self.readers.query(move |conn| {
            let sql = "SELECT c.seq, c.body FROM checkpoints c JOIN threads t ON t.num = c.thread
                       WHERE t.id = ?1 AND t.owner = ?2";
            let row = |row: &Row<'_>| Ok(Checkpoint { seq: Seq(get_u64(row, 0)?), body: get_text(row, 1)? });
            conn.prepare_cached(sql)?.query_row((thread.as_str(), owner.as_str()), row).optional()
        }))
    }

    fn approvals<'a>(
        &'a self,
        owner: &'a UserId,
        pending: bool,
        page: ListPage,
    ) -> BoxFuture<'a, Result<Vec<ApprovalRow>, StoreError>> {
        let owner = owner.clone();
        Box::pin(self.readers.query(move |conn| approvals::list_approvals(conn, &owner, pending, &page)))
    }

    fn approval<'a>(
        &'a self,
        owner: &'a UserId,
        key: &'a ApprovalKey,
    ) -> BoxFuture<'a, Result<Option<ApprovalRow>, StoreError>> {
        let (owner, key) = (owner.clone(), key.clone());
        Box::pin(self.readers.query(move |conn| approvals::find_approval(conn, &owner, &key)))
    }

    fn daily_spend<'a>(&'a self, owner: &'a UserId, day: Day) -> BoxFuture<'a, Result<Spend, StoreError>> {
        let owner = owner.clone();
        Box::pin(self.readers.query(move |conn| spend::find_daily_spend(conn, &owner, day)))
    }

    fn scheduled_wakeups(&self) -> BoxFuture<'_, Result<Vec<ScheduledWakeup>, StoreError>> {
        Box::pin(self.readers.query(|conn| {
            let sql = "SELECT owner, id, wake_at FROM threads WHERE wake_at IS NOT NULL ORDER BY wake_at, id";
            conn.prepare_cached(sql)?.query_map((), wakeup_row)?.collect()
        }))
    }

    fn create_alias<'a>(&'a self, owner: &'a UserId, row: AliasRow) -> BoxFuture<'a, Result<AliasRow, StoreError>> {
        Box::pin(self.call_writer(move |reply| WriteOp::CreateAlias {
            owner: owner.clone(),
            row: Box::new(row),
            reply,
        }))
    }

    fn alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<AliasRow>, StoreError>> {
        let place = AliasKey::new(owner, protocol, name);
        Box::pin(self.readers.query(move |conn| aliases::find_alias(conn, &place)))
    }

    fn update_alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
        note: String,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let place = Box::new(AliasKey::new(owner, protocol, name));
        Box::pin(self.call_writer(move |reply| WriteOp::ChangeAlias { key: place, note: Some(note), reply }))
    }

    fn delete_alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let place = Box::new(AliasKey::new(owner, protocol, name));
        Box::pin(self.call_writer(move |reply| WriteOp::ChangeAlias { key: place, note: None, reply }))
    }

    fn create_share(&self, share: ShareRow) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call_writer(move |reply| WriteOp::CreateShare { share: Box::new(share), reply }))
    }

    fn shares<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<ShareRow>, StoreError>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        Box::pin(self.readers.query(move |conn| shares::list_shares(conn, &owner, &thread)))
    }

    fn revoke_share<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        id: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let which = Box::new(ShareKey { owner: owner.clone(), thread: thread.clone(), id: id.to_owned() });
        Box::pin(self.call_writer(move |reply| WriteOp::RevokeShare { key: which, at, reply }))
    }

    fn active_shares(&self, at: Millis) -> BoxFuture<'_, Result<Vec<ShareRow>, StoreError>> {
        Box::pin(self.readers.query(move |conn| shares::list_active_shares(conn, at)))
    }

    fn put_definitions<'a>(&'a self, digest: &'a str, body: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let kept = Box::new((digest.to_owned(), body.to_owned()));
        Box::pin(self.call_writer(move |reply| WriteOp::StoreDefinitions { definitions: kept, reply }))
    }

    fn definitions<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let digest = digest.to_owned();
        Box::pin(self.readers.query(move |conn| {
            let mut select = conn.prepare_cached("SELECT body FROM definitions WHERE digest = ?1")?;
            select.query_row([digest], |row| get_text(row, 0)).optional()
        }))
    }

    fn create_access_key(&self, key: AccessKeyRow) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call_writer(move |reply| WriteOp::CreateAccessKey { key: Box::new(key), reply }))
    }

    fn access_keys(&self) -> BoxFuture<'_, Result<Vec<AccessKeyRow>, StoreError>> {
        Box::pin(self.readers.query(|conn| {
            let sql = "SELECT id, user, digest, created_at, revoked_at FROM keys ORDER BY created_at, id";
            conn.prepare_cached(sql)?.query_map((), access_key_row)?.collect()
        }))
    }

    fn revoke_access_key<'a>(&'a self, id: &'a str, at: Millis) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.call_writer(move |reply| WriteOp::RevokeAccessKey { id: id.to_owned(), at, reply }))
    }
}

/// No name comes after this one.
pub(super) const LAST_ID: &str = "\u{10ffff}";

const SELECT_RUNS: &str = "SELECT r.id, t.id, r.agent, r.status, r.first, r.last, r.created_at, r.ended_at
                           FROM runs r JOIN threads t ON t.num = r.thread";

fn list_inbox(conn: &Connection, owner: &UserId, thread: &ThreadId) -> Result<Vec<InboxRow>, StoreError> {
    let fault = |error: rusqlite::Error| record_row::unavailable_error(&error);
    let snapshot = conn.unchecked_transaction().map_err(fault)?;
    let found = super::page::find_thread(&snapshot, thread).map_err(fault)?;
    let (num, _) = found.filter(|(_, of)| of == owner.as_str()).ok_or(StoreError::ThreadNotFound)?;
    let mut select =
        snapshot.prepare_cached("SELECT id, at, command FROM inbox WHERE thread = ?1 ORDER BY id").map_err(fault)?;
    let rows = select.query_map([num], inbox_row).and_then(Iterator::collect).map_err(fault)?;
    Ok(rows)
}

fn list_runs(conn: &Connection, owner: &UserId, filter: &RunFilter, page: &ListPage) -> rusqlite::Result<Vec<RunRow>> {
    let mut sql = format!("{SELECT_RUNS} WHERE r.owner = ?");
    let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(owner.as_str().to_owned())];
    if let Some(thread) = &filter.thread {
        sql.push_str(" AND t.id = ?");
        values.push(Box::new(thread.as_str().to_owned()));
    }
    if let Some(before) = &page.before {
        sql.push_str(" AND r.id < ?");
        values.push(Box::new(before.clone()));
    }
    if !filter.status.is_empty() {
        if !filter.status.iter().any(|status| status.is_terminal()) {
            // There are few of these among many, and an index of their own has them.
            sql.push_str(" AND r.ended_at IS NULL");
        }
        sql.push_str(" AND r.status IN (");
        for (at, status) in filter.status.iter().enumerate() {
            sql.push_str(if at == 0 { "?" } else { ", ?" });
            values.push(Box::new(status.as_str()));
        }
        sql.push(')');
    }
    sql.push_str(" ORDER BY r.id DESC LIMIT ?");
    values.push(Box::new(i64::try_from(page.limit).unwrap_or(i64::MAX)));
    conn.prepare_cached(&sql)?.query_map(params_from_iter(values), run_row)?.collect()
}

fn thread_row(row: &Row<'_>) -> rusqlite::Result<ThreadRow> {
    Ok(ThreadRow { id: ThreadId::from(get_text(row, 0)?), created_at: get_u64(row, 1)?, updated_at: get_u64(row, 2)? })
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let status = TaskStatus::parse(&get_text(row, 3)?);
    let seq = |at: usize| get_opt_u64(row, at).map(|seq| seq.map(Seq));
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
    let command: Command = serde_json::from_str(&get_text(row, 2)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, error.into()))?;
    Ok(InboxRow { id: get_u64(row, 0)?, at: get_u64(row, 1)?, command })
}

fn wakeup_row(row: &Row<'_>) -> rusqlite::Result<ScheduledWakeup> {
    Ok(ScheduledWakeup {
        owner: UserId::from(get_text(row, 0)?),
        thread: ThreadId::from(get_text(row, 1)?),
        at: get_u64(row, 2)?,
    })
}

fn access_key_row(row: &Row<'_>) -> rusqlite::Result<AccessKeyRow> {
    Ok(AccessKeyRow {
        id: get_text(row, 0)?,
        user: UserId::from(get_text(row, 1)?),
        digest: get_text(row, 2)?,
        created_at: get_u64(row, 3)?,
        revoked_at: get_opt_u64(row, 4)?,
    })
}

pub(super) fn get_text(row: &Row<'_>, at: usize) -> rusqlite::Result<String> {
    row.get(at)
}

pub(super) fn get_u64(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(at).map(i64::cast_unsigned)
}

pub(super) fn get_opt_u64(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<u64>> {
    row.get::<_, Option<i64>>(at).map(|number| number.map(i64::cast_unsigned))
}
