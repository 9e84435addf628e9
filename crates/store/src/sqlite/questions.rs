//! Approvals. Records open and close them; a submitted decision closes them, too.
//!
//! A question is open exactly when the answer column is null. Actions and answers are opaque JSON.

use super::columns::{from_json_column, get_text, get_u64, page_bounds, to_json_column};
use super::{SqliteStore, client_results, page};
use async_trait::async_trait;
use model::command::ClientToolResult;
use model::ports::validation;
use model::ports::{
    AppendBatch, AppendOutcome, ApprovalAnswer, ApprovalFilter, ApprovalRow, DirectoryChange, ListPage,
    PendingQuestions, StoreResult, StoredAction, Submission, SubmitError, Submitted,
};
use model::seq::Millis;
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

const SELECT: &str = "SELECT a.key, t.id, a.run, a.task, a.call, a.action, a.requested_at, a.expires_at, a.answer
                      FROM approvals a JOIN threads t ON t.num = a.thread";

#[async_trait]
impl PendingQuestions for SqliteStore {
    async fn approvals(&self, owner: &UserId, filter: ApprovalFilter, page: ListPage) -> StoreResult<Vec<ApprovalRow>> {
        let owner = owner.clone();
        self.query(move |conn| list_approvals(conn, &owner, filter, &page)).await
    }

    async fn approval(&self, owner: &UserId, key: &ApprovalKey) -> StoreResult<Option<ApprovalRow>> {
        let (owner, key) = (owner.clone(), key.clone());
        self.query(move |conn| find_approval(conn, &owner, &key)).await
    }

    async fn has_client_result(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        result: &ClientToolResult,
    ) -> StoreResult<bool> {
        let (owner, thread, result) = (owner.clone(), thread.clone(), result.clone());
        self.query(move |conn| {
            let Some(num) = page::find_owned_thread(conn, &owner, &thread)? else { return Ok(false) };
            let stored = client_results::find_digest(conn, num, &result.call_id)?;
            Ok(stored == Some(validation::result_digest(&result)))
        })
        .await
    }
}

/// The result of a decision on a closed question; `None` for an open question and for other commands.
pub(super) fn closed_approval_result(
    conn: &Connection,
    owner: &UserId,
    submission: &Submission,
    cancelled_at: Option<Millis>,
) -> rusqlite::Result<Option<Result<Submitted, SubmitError>>> {
    let Some((key, decision, by)) = validation::approval_decision(&submission.command) else { return Ok(None) };
    let found = find_approval(conn, owner, key)?;
    let Some(question) = found.filter(|question| question.thread_id == submission.thread) else {
        return Ok(Some(Err(SubmitError::ApprovalNotFound)));
    };
    Ok(validation::closed_approval_result(&question, (decision, by), submission.at, cancelled_at))
}

/// Checks that every question that the batch opens or closes belongs to the thread.
pub(super) fn check_approvals(
    conn: &Connection,
    thread: i64,
    batch: &AppendBatch,
) -> rusqlite::Result<Result<(), AppendOutcome>> {
    let mut asked = Vec::new();
    for change in batch.changes.iter() {
        let (key, is_asked) = match change {
            DirectoryChange::ApprovalRequested(question) => (&question.key, true),
            DirectoryChange::ApprovalResolved { key, .. } => (key, false),
            _ => continue,
        };
        let mut select = conn.prepare_cached("SELECT thread FROM approvals WHERE owner = ?1 AND key = ?2")?;
        let found = select.query_row((batch.owner.as_str(), key.as_str()), |row| row.get::<_, i64>(0)).optional()?;
        let fits = found.map_or_else(|| is_asked || asked.contains(&key), |found| found == thread);
        if !fits {
            return Ok(Err(validation::unknown_approval(key)));
        }
        asked.push(key);
    }
    Ok(Ok(()))
}

/// Opens a question, or reopens it.
pub(super) fn open_approval(
    conn: &Connection,
    owner: &UserId,
    thread: i64,
    question: &ApprovalRow,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO approvals
               (owner, key, thread, run, task, call, action, requested_at, expires_at, answer)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL)";
    let mut insert = conn.prepare_cached(sql)?;
    insert.execute((
        owner.as_str(),
        question.key.as_str(),
        thread,
        question.run_id.as_str(),
        question.task_id.as_str(),
        question.call_id.as_str(),
        to_json_column(&StoredAction::from_row(question))?,
        question.requested_at.cast_signed(),
        question.expires_at.cast_signed(),
    ))?;
    Ok(())
}

/// Closes a question. A stored answer that this repeats stays unchanged.
pub(super) fn close_approval(
    conn: &Connection,
    owner: &UserId,
    key: &ApprovalKey,
    answer: &ApprovalAnswer,
) -> rusqlite::Result<()> {
    let stored = find_approval(conn, owner, key)?.and_then(|question| question.answer);
    if stored.is_some_and(|stored| validation::is_same_answer(&stored, answer)) {
        return Ok(());
    }
    let mut update = conn.prepare_cached("UPDATE approvals SET answer = ?3 WHERE owner = ?1 AND key = ?2")?;
    update.execute((owner.as_str(), key.as_str(), to_json_column(answer)?)).map(drop)
}

fn find_approval(conn: &Connection, owner: &UserId, key: &ApprovalKey) -> rusqlite::Result<Option<ApprovalRow>> {
    let mut select = conn.prepare_cached(&format!("{SELECT} WHERE a.owner = ?1 AND a.key = ?2"))?;
    select.query_row((owner.as_str(), key.as_str()), approval_row).optional()
}

/// Newest first. Open approvals have a partial index.
fn list_approvals(
    conn: &Connection,
    owner: &UserId,
    filter: ApprovalFilter,
    page: &ListPage,
) -> rusqlite::Result<Vec<ApprovalRow>> {
    let condition = match filter {
        ApprovalFilter::Pending => "AND a.answer IS NULL",
        ApprovalFilter::All => "",
    };
    let sql = format!(
        "{SELECT} WHERE a.owner = ?1 {condition} AND (a.requested_at, a.key) <
         (coalesce((SELECT requested_at FROM approvals WHERE owner = ?1 AND key = ?2), ?4), ?2)
         ORDER BY a.requested_at DESC, a.key DESC LIMIT ?3"
    );
    let (before, limit) = page_bounds(page);
    conn.prepare_cached(&sql)?.query_map((owner.as_str(), before, limit, i64::MAX), approval_row)?.collect()
}

fn approval_row(row: &Row<'_>) -> rusqlite::Result<ApprovalRow> {
    let answer: Option<String> = row.get(8)?;
    let (action, question) = from_json_column::<StoredAction>(&get_text(row, 5)?, 5)?.into_parts();
    Ok(ApprovalRow {
        key: ApprovalKey::from(get_text(row, 0)?),
        thread_id: ThreadId::from(get_text(row, 1)?),
        run_id: TaskId::from(get_text(row, 2)?),
        task_id: TaskId::from(get_text(row, 3)?),
        call_id: CallId::from(get_text(row, 4)?),
        action,
        requested_at: get_u64(row, 6)?,
        expires_at: get_u64(row, 7)?,
        question,
        answer: answer.map(|answer| from_json_column(&answer, 8)).transpose()?,
    })
}
