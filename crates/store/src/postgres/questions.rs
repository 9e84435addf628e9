//! Approvals, and results of client tools. Records open and close questions; submitted answers close them, too.

use super::PostgresStore;
use super::connection::{OpenTransaction, Params, column, json_column, limit_param, to_json, u64_column};
use async_trait::async_trait;
use model::command::ClientToolResult;
use model::ports::validation;
use model::ports::{
    ApprovalAnswer, ApprovalFilter, ApprovalRow, ListPage, PendingQuestions, StoreResult, StoredAction,
};
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const SELECT: &str = "SELECT a.key, t.id, a.run, a.task, a.call, a.action, a.requested_at, a.expires_at, a.answer
                      FROM headwater.approvals a JOIN headwater.threads t ON t.num = a.thread";

#[async_trait]
impl PendingQuestions for PostgresStore {
    async fn approvals(&self, owner: &UserId, filter: ApprovalFilter, page: ListPage) -> StoreResult<Vec<ApprovalRow>> {
        let condition = match filter {
            ApprovalFilter::Pending => "AND a.answer IS NULL",
            ApprovalFilter::All => "",
        };
        // A cursor whose question was deleted starts from the beginning.
        let sql = format!(
            "{SELECT} LEFT JOIN headwater.approvals b ON b.owner = $1 AND b.key = $2
             WHERE a.owner = $1 {condition} AND (b.key IS NULL OR (a.requested_at, a.key) < (b.requested_at, b.key))
             ORDER BY a.requested_at DESC, a.key DESC LIMIT $3"
        );
        let params: Params<'_> =
            &[(&owner.as_str(), Type::TEXT), (&page.before, Type::TEXT), (&limit_param(page.limit), Type::INT8)];
        self.pool.query(&sql, params).await?.iter().map(approval_row).collect()
    }

    async fn approval(&self, owner: &UserId, key: &ApprovalKey) -> StoreResult<Option<ApprovalRow>> {
        let sql = format!("{SELECT} WHERE a.owner = $1 AND a.key = $2");
        let row = self.pool.query_opt(&sql, &[(&owner.as_str(), Type::TEXT), (&key.as_str(), Type::TEXT)]).await?;
        row.as_ref().map(approval_row).transpose()
    }

    async fn has_client_result(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        result: &ClientToolResult,
    ) -> StoreResult<bool> {
        let sql = "SELECT 1 FROM headwater.client_results c JOIN headwater.threads t ON t.num = c.thread
                   WHERE t.id = $1 AND t.owner = $2 AND c.call = $3 AND c.digest = $4";
        let params: Params<'_> = &[
            (&thread.as_str(), Type::TEXT),
            (&owner.as_str(), Type::TEXT),
            (&result.call_id.as_str(), Type::TEXT),
            (&validation::result_digest(result), Type::TEXT),
        ];
        Ok(self.pool.query_opt(sql, params).await?.is_some())
    }
}

pub(super) async fn find_approval(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    key: &ApprovalKey,
) -> StoreResult<Option<ApprovalRow>> {
    let sql = format!("{SELECT} WHERE a.owner = $1 AND a.key = $2");
    let row = tx.query_opt(&sql, &[(&owner.as_str(), Type::TEXT), (&key.as_str(), Type::TEXT)]).await?;
    row.as_ref().map(approval_row).transpose()
}

/// Answers an open question.
pub(super) async fn close_approval(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    key: &ApprovalKey,
    answer: &ApprovalAnswer,
) -> StoreResult<()> {
    let sql = "UPDATE headwater.approvals SET answer = $3 WHERE owner = $1 AND key = $2 AND answer IS NULL";
    let answer = to_json(answer)?;
    let params: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&key.as_str(), Type::TEXT), (&answer, Type::TEXT)];
    tx.execute(sql, params).await.map(drop)
}

/// The digest of the result that closed each call, in the order of the calls.
pub(super) async fn find_digests(
    tx: &OpenTransaction<'_>,
    thread: i64,
    calls: &[&str],
) -> StoreResult<Vec<Option<String>>> {
    let sql = "SELECT c.digest FROM unnest($2) WITH ORDINALITY AS u(call, place)
               LEFT JOIN headwater.client_results c ON c.thread = $1 AND c.call = u.call ORDER BY u.place";
    let rows = tx.query(sql, &[(&thread, Type::INT8), (&calls, Type::TEXT_ARRAY)]).await?;
    rows.iter().map(|row| column(row, 0)).collect()
}

/// Closes calls. The result that closed a call first stays.
pub(super) async fn close_calls(
    tx: &OpenTransaction<'_>,
    thread: i64,
    results: &[ClientToolResult],
) -> StoreResult<()> {
    if results.is_empty() {
        return Ok(());
    }
    let calls: Vec<&str> = results.iter().map(|result| result.call_id.as_str()).collect();
    let digests: Vec<String> = results.iter().map(validation::result_digest).collect();
    let sql = "INSERT INTO headwater.client_results SELECT $1, u.call, u.digest FROM unnest($2, $3) AS u(call, digest)
               ON CONFLICT DO NOTHING";
    let params: Params<'_> = &[(&thread, Type::INT8), (&calls, Type::TEXT_ARRAY), (&digests, Type::TEXT_ARRAY)];
    tx.execute(sql, params).await.map(drop)
}

fn approval_row(row: &Row) -> StoreResult<ApprovalRow> {
    let answer: Option<&str> = column(row, 8)?;
    let (action, question) = json_column::<StoredAction>(column(row, 5)?)?.into_parts();
    Ok(ApprovalRow {
        key: ApprovalKey::from(column::<&str>(row, 0)?),
        thread_id: ThreadId::from(column::<&str>(row, 1)?),
        run_id: TaskId::from(column::<&str>(row, 2)?),
        task_id: TaskId::from(column::<&str>(row, 3)?),
        call_id: CallId::from(column::<&str>(row, 4)?),
        action,
        requested_at: u64_column(row, 6)?,
        expires_at: u64_column(row, 7)?,
        question,
        answer: answer.map(json_column).transpose()?,
    })
}
