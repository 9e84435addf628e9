//! Questions to people: rows that open and close with records, and close with a decision that comes first.
//!
//! The answer is one column, so that a question is open exactly when that is empty. What was asked and answered is JSON
//! that nobody here looks into.

use super::directory::{LAST_ID, get_text, get_u64};
use super::transaction::WriteTransaction;
use crate::validation;
use model::ports::{
    AppendBatch, AppendOutcome, ApprovalAnswer, ApprovalRow, DirectoryChange, ListPage, Submission, SubmitError,
    Submitted,
};
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};

const SELECT: &str = "SELECT a.key, t.id, a.run, a.task, a.call, a.action, a.requested_at, a.expires_at, a.answer
                      FROM approvals a JOIN threads t ON t.num = a.thread";

impl WriteTransaction<'_> {
    /// What a submission gets whose question is not open; `None` when it is, or where there is no question in it.
    pub(crate) fn closed_approval_result(
        &self,
        owner: &UserId,
        submission: &Submission,
    ) -> rusqlite::Result<Option<Result<Submitted, SubmitError>>> {
        let Some((key, decision, by)) = validation::approval_decision(&submission.command) else { return Ok(None) };
        let found = find_approval(self.conn, owner, key)?;
        let Some(question) = found.filter(|question| question.thread_id == submission.thread) else {
            return Ok(Some(Err(SubmitError::ApprovalNotFound)));
        };
        Ok(validation::closed_approval_result(&question, (decision, by), submission.at))
    }

    /// Does the thread have, or get, the questions that a batch is about?
    pub(crate) fn check_approvals(
        &self,
        thread: i64,
        batch: &AppendBatch,
    ) -> rusqlite::Result<Result<(), AppendOutcome>> {
        let mut asked = Vec::new();
        for change in &batch.changes {
            let (key, is_asked) = match change {
                DirectoryChange::ApprovalRequested(question) => (&question.key, true),
                DirectoryChange::ApprovalResolved { key, .. } => (key, false),
                _ => continue,
            };
            let mut select = self.conn.prepare_cached("SELECT thread FROM approvals WHERE owner = ?1 AND key = ?2")?;
            let of = select.query_row((batch.owner.as_str(), key.as_str()), |row| row.get::<_, i64>(0)).optional()?;
            let fits = of.map_or_else(|| is_asked || asked.contains(&key), |of| of == thread);
            if !fits {
                return Ok(Err(validation::unknown_approval(key)));
            }
            asked.push(key);
        }
        Ok(Ok(()))
    }

    /// Opens a question, again if need be.
    pub(crate) fn open_approval(&self, owner: &UserId, thread: i64, question: &ApprovalRow) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO approvals
                   (owner, key, thread, run, task, call, action, requested_at, expires_at, answer)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL)";
        let mut insert = self.conn.prepare_cached(sql)?;
        insert.execute((
            owner.as_str(),
            question.key.as_str(),
            thread,
            question.run_id.as_str(),
            question.task_id.as_str(),
            question.call_id.as_str(),
            to_json_column(serde_json::to_string(&question.action))?,
            question.requested_at.cast_signed(),
            question.expires_at.cast_signed(),
        ))?;
        Ok(())
    }

    /// Closes a question. Where that repeats how it was closed before, it stays as it is.
    pub(crate) fn close_approval(
        &self,
        owner: &UserId,
        key: &ApprovalKey,
        answer: &ApprovalAnswer,
    ) -> rusqlite::Result<()> {
        let known = find_approval(self.conn, owner, key)?.and_then(|question| question.answer);
        if known.is_some_and(|known| validation::is_same_answer(&known, answer)) {
            return Ok(());
        }
        let sql = "UPDATE approvals SET answer = ?3 WHERE owner = ?1 AND key = ?2";
        let mut update = self.conn.prepare_cached(sql)?;
        update.execute((owner.as_str(), key.as_str(), to_json_column(serde_json::to_string(answer))?)).map(drop)
    }
}

/// One question.
pub(crate) fn find_approval(
    conn: &Connection,
    owner: &UserId,
    key: &ApprovalKey,
) -> rusqlite::Result<Option<ApprovalRow>> {
    let mut select = conn.prepare_cached(&format!("{SELECT} WHERE a.owner = ?1 AND a.key = ?2"))?;
    select.query_row((owner.as_str(), key.as_str()), approval_row).optional()
}

/// A user's questions, newest first; the open ones have an index of their own.
pub(crate) fn list_approvals(
    conn: &Connection,
    owner: &UserId,
    pending: bool,
    page: &ListPage,
) -> rusqlite::Result<Vec<ApprovalRow>> {
    let open = if pending { "AND a.answer IS NULL" } else { "" };
    let sql = format!(
        "{SELECT} WHERE a.owner = ?1 {open} AND (a.requested_at, a.key) <
         (coalesce((SELECT requested_at FROM approvals WHERE owner = ?1 AND key = ?2), ?4), ?2)
         ORDER BY a.requested_at DESC, a.key DESC LIMIT ?3"
    );
    let before = page.before.as_deref().unwrap_or(LAST_ID);
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    conn.prepare_cached(&sql)?.query_map((owner.as_str(), before, limit, i64::MAX), approval_row)?.collect()
}

fn approval_row(row: &Row<'_>) -> rusqlite::Result<ApprovalRow> {
    let answer: Option<String> = row.get(8)?;
    Ok(ApprovalRow {
        key: ApprovalKey::from(get_text(row, 0)?),
        thread_id: ThreadId::from(get_text(row, 1)?),
        run_id: TaskId::from(get_text(row, 2)?),
        task_id: TaskId::from(get_text(row, 3)?),
        call_id: CallId::from(get_text(row, 4)?),
        action: from_json_column(serde_json::from_str(&get_text(row, 5)?), 5)?,
        requested_at: get_u64(row, 6)?,
        expires_at: get_u64(row, 7)?,
        answer: answer.map(|answer| from_json_column(serde_json::from_str(&answer), 8)).transpose()?,
    })
}

fn to_json_column(json: serde_json::Result<String>) -> rusqlite::Result<String> {
    json.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn from_json_column<T>(value: serde_json::Result<T>, column: usize) -> rusqlite::Result<T> {
    value.map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))
}
