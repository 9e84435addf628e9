//! The directory's side of a transaction: commands into inboxes, threads away, keys, definitions.

use super::page;
use super::record_index::{Extent, IndexUpdate};
use super::transaction::WriteTransaction;
use crate::validation;
use model::command::Command;
use model::ports::{AccessKeyRow, ApprovalAnswer, IdempotencyKey, StoreError, Submission, SubmitError, Submitted};
use model::seq::{Millis, Seq};
use model::{TaskId, ThreadId, UserId};
use rusqlite::OptionalExtension;

/// Idempotency keys are kept for a week; 24 hours are promised.
const IDEMPOTENCY_KEY_TTL_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Old ones are looked for once in so many submissions.
const EXPIRE_EVERY: u32 = 256;
/// And so many are forgotten at once.
const EXPIRE_MAX: u32 = 1_000;

impl WriteTransaction<'_> {
    /// Writes a command down.
    pub(crate) fn submit(
        &mut self,
        owner: &UserId,
        submission: &Submission,
    ) -> rusqlite::Result<Result<Submitted, SubmitError>> {
        if let Some(idempotency) = &submission.idempotency_key
            && let Some(known) = find_submission(self.conn, owner, idempotency)?
        {
            return Ok(known);
        }
        let thread = match self.resolve_thread(owner, submission)? {
            Ok(thread) => thread,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(known) = self.closed_approval_result(owner, submission)? {
            return Ok(known);
        }
        let mut count = self.conn.prepare_cached("SELECT count(*) FROM inbox WHERE thread = ?1")?;
        let waiting = count.query_row([thread.unwrap_or_default()], |row| row.get::<_, u32>(0))? as usize;
        if waiting >= self.state.inbox_rows_max && !validation::bypasses_inbox_limit(&submission.command) {
            return Ok(Err(SubmitError::InboxFull(waiting)));
        }
        if let Command::Start(start) = &submission.command
            && self.run_exists(owner, &start.task_id)?
        {
            return Ok(Err(id_taken_error(start.task_id.as_str())));
        }
        self.insert_submission(owner, submission, thread).map(Ok)
    }

    /// The number of the thread that is meant; `None` when it is going to be made.
    fn resolve_thread(
        &self,
        owner: &UserId,
        submission: &Submission,
    ) -> rusqlite::Result<Result<Option<i64>, SubmitError>> {
        let found = page::find_thread(self.conn, &submission.thread)?;
        Ok(match (found, submission.new_thread, &submission.command) {
            (Some((_, of)), true, _) if of == owner.as_str() => Err(SubmitError::ThreadExists),
            (Some(_), true, _) => Err(id_taken_error(submission.thread.as_str())),
            (Some((num, of)), false, _) if of == owner.as_str() => Ok(Some(num)),
            (None, true, Command::Start(_)) => Ok(None),
            (Some(_) | None, ..) => Err(SubmitError::Store(StoreError::ThreadNotFound)),
        })
    }

    fn run_exists(&self, owner: &UserId, run: &TaskId) -> rusqlite::Result<bool> {
        let mut select = self.conn.prepare_cached("SELECT 1 FROM runs WHERE owner = ?1 AND id = ?2")?;
        select.exists((owner.as_str(), run.as_str()))
    }

    fn insert_submission(
        &mut self,
        owner: &UserId,
        submission: &Submission,
        known: Option<i64>,
    ) -> rusqlite::Result<Submitted> {
        if let Some((key, decision, by)) = validation::approval_decision(&submission.command) {
            let answer = ApprovalAnswer { decision: decision.clone(), by, at: submission.at };
            self.close_approval(owner, key, &answer)?;
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
            let sql = "INSERT INTO runs (id, owner, thread, agent, status, created_at)
                       VALUES (?1, ?2, ?3, ?4, 'queued', ?5)";
            let mut insert = self.conn.prepare_cached(sql)?;
            insert.execute((start.task_id.as_str(), owner.as_str(), thread, &start.agent, at))?;
        }
        let command = serde_json::to_string(&submission.command)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        let mut insert = self.conn.prepare_cached("INSERT INTO inbox (thread, at, command) VALUES (?1, ?2, ?3)")?;
        let row = insert.insert((thread, at, command))?;
        if let Some(IdempotencyKey { key, request_digest: digest }) = &submission.idempotency_key {
            let task = submission.command.task_id().as_str();
            let mut insert =
                self.conn.prepare_cached("INSERT OR REPLACE INTO idempotency VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
            insert.execute((owner.as_str(), key, digest, task, thread, at))?;
        }
        self.state.submissions_since_expiry += 1;
        if self.state.submissions_since_expiry >= EXPIRE_EVERY {
            self.state.submissions_since_expiry = 0;
            expire_idempotency_keys(self.conn)?;
        }
        Ok(match known {
            Some(_) => Submitted::Queued,
            None => Submitted::ThreadCreated {
                lease: self.claim_new_thread(&submission.thread, thread, owner),
                row: row.cast_unsigned(),
            },
        })
    }

    /// Removes a thread with everything in it. One that is not there may use something all the same.
    pub(crate) fn delete_thread(
        &mut self,
        owner: &UserId,
        thread: &ThreadId,
    ) -> rusqlite::Result<Result<bool, StoreError>> {
        self.unlink_thread(owner, thread)?;
        let Some((num, _)) = page::find_thread(self.conn, thread)?.filter(|(_, of)| of == owner.as_str()) else {
            return Ok(Ok(false));
        };
        if self.state.index.read_plan(thread, Seq::ZERO, 0).is_some_and(|plan| plan.damaged_at.is_some()) {
            // Not all of its rows are known: all rows have to be looked at.
            self.conn.execute("DELETE FROM records WHERE thread = ?1", [num])?;
        }
        let mut gone = self.conn.prepare_cached("DELETE FROM records WHERE pos >= ?1 AND pos < ?2 AND thread = ?3")?;
        let dead: Vec<_> = self.state.dead_rows.ranges_of_thread(num).collect();
        let live = self.thread_extents(thread, num).into_iter().map(|extent| (extent.pos, extent.end_pos()));
        for (pos, end) in live.chain(dead) {
            gone.execute((pos, end, num))?;
        }
        for table in ["blocks", "runs", "inbox", "checkpoints", "idempotency", "approvals", "shares"] {
            self.conn.prepare_cached(&format!("DELETE FROM {table} WHERE thread = ?1"))?.execute([num])?;
        }
        let mut names = self.conn.prepare_cached("DELETE FROM names WHERE thread = ?1 AND owner = ?2")?;
        names.execute((thread.as_str(), owner.as_str()))?;
        self.conn.prepare_cached("DELETE FROM threads WHERE num = ?1")?.execute([num])?;
        self.state.threads.remove(thread);
        self.state.epochs.remove(&num);
        self.index_updates.push(IndexUpdate::ThreadDeleted { thread: thread.clone() });
        self.has_deleted_content = true;
        Ok(Ok(true))
    }

    /// Where the thread's rows lie, those of this transaction included.
    fn thread_extents(&self, thread: &ThreadId, num: i64) -> Vec<Extent> {
        let published = self.state.index.read_plan(thread, Seq::ZERO, usize::MAX).filter(|plan| plan.num == num);
        let mut extents = published.map(|plan| plan.extents).unwrap_or_default();
        extents.extend(self.index_updates.iter().filter_map(|news| match news {
            IndexUpdate::Appended { num: of, extent, .. } if *of == num => Some(*extent),
            IndexUpdate::Appended { .. }
            | IndexUpdate::ThreadCreated { .. }
            | IndexUpdate::Packed { .. }
            | IndexUpdate::ThreadDeleted { .. } => None,
        }));
        extents
    }

    /// Lets somebody in.
    pub(crate) fn create_access_key(&mut self, key: &AccessKeyRow) -> rusqlite::Result<Result<(), StoreError>> {
        if self.conn.prepare_cached("SELECT 1 FROM keys WHERE id = ?1")?.exists([&key.id])? {
            return Ok(Err(StoreError::Unavailable(format!("there is a key named {} already", key.id))));
        }
        let revoked = key.revoked_at.map(u64::cast_signed);
        let mut insert = self.conn.prepare_cached("INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5)")?;
        insert.execute((&key.id, key.user.as_str(), &key.digest, key.created_at.cast_signed(), revoked))?;
        Ok(Ok(()))
    }

    /// Lets a key in no longer; the first time counts.
    pub(crate) fn revoke_access_key(&mut self, id: &str, at: Millis) -> rusqlite::Result<Result<bool, StoreError>> {
        let sql = "UPDATE keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1";
        Ok(Ok(self.conn.prepare_cached(sql)?.execute((id, at.cast_signed()))? > 0))
    }

    /// Keeps definitions. What has their digest already is what they say.
    pub(crate) fn store_definitions(&mut self, digest: &str, body: &str) -> rusqlite::Result<Result<(), StoreError>> {
        let mut insert = self.conn.prepare_cached("INSERT OR IGNORE INTO definitions VALUES (?1, ?2)")?;
        insert.execute((digest, body))?;
        Ok(Ok(()))
    }
}

/// Names are random and long: one that is taken is a caller's mistake, and another try takes another name.
fn id_taken_error(name: &str) -> SubmitError {
    SubmitError::Store(StoreError::Unavailable(format!("{name} is taken: use another name")))
}

/// Forgets some idempotency keys that are a week older than the newest. No clock is asked: what counts is the time that
/// the submissions themselves came with.
pub(crate) fn expire_idempotency_keys(conn: &rusqlite::Connection) -> rusqlite::Result<usize> {
    let newest: Option<i64> = conn.query_row("SELECT max(at) FROM idempotency", (), |row| row.get(0))?;
    let limit = newest.unwrap_or_default().saturating_sub_unsigned(IDEMPOTENCY_KEY_TTL_MS);
    let sql = "DELETE FROM idempotency WHERE (owner, key) IN
               (SELECT owner, key FROM idempotency WHERE at < ?1 LIMIT ?2)";
    conn.execute(sql, (limit, EXPIRE_MAX))
}

/// What was made with this key before.
pub(crate) fn find_submission(
    conn: &rusqlite::Connection,
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
