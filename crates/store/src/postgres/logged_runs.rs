//! Reads a logged run from a database that nodes may use.

use super::attachment_rows::{SELECT, attachment_row};
use super::client::PostgresClient;
use super::connection::{column, opt_u64_column, u64_column};
use super::records::LogReader;
use crate::logged_run::{LoggedRun, SharedLog};
use async_trait::async_trait;
use model::ports::{AttachmentRow, PageLimit, StoreResult};
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use std::ops::Range;
use tokio_postgres::types::Type;

const FIND_RUN: &str = "
    SELECT t.id, t.owner, r.ended_at IS NOT NULL, r.first_seq, r.last_seq, t.head
    FROM headwater.runs r JOIN headwater.threads t ON t.num = r.thread WHERE r.id = $1 ORDER BY r.num LIMIT 1";

impl PostgresClient {
    /// Finds a run of any owner.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn find_logged_run(&self, id: &TaskId) -> StoreResult<Option<LoggedRun>> {
        let Some(row) = self.pool.query_opt(FIND_RUN, &[(&id.as_str(), Type::TEXT)]).await? else { return Ok(None) };
        let has_ended: bool = column(&row, 2)?;
        let seq = |index: usize| opt_u64_column(&row, index).map(|seq| seq.map(Seq));
        // An active run is the last of its thread, so it extends to the head of the log.
        let last = if has_ended { seq(4)? } else { Some(Seq(u64_column(&row, 5)?)) };
        Ok(Some(LoggedRun {
            id: id.clone(),
            thread: ThreadId::from(column::<&str>(&row, 0)?),
            owner: UserId::from(column::<&str>(&row, 1)?),
            has_ended,
            seq_range: seq(3)?.zip(last).filter(|(first, last)| first <= last),
            log: Box::new(self.log_reader()),
        }))
    }
}

#[async_trait]
impl SharedLog for LogReader {
    async fn read_page(&self, owner: &UserId, thread: &ThreadId, range: Range<Seq>) -> StoreResult<Vec<Record>> {
        Ok(self.read_page((owner, thread), range, PageLimit::WIDE).await?.records)
    }

    async fn find_blob(&self, owner: &UserId, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        let sql = format!("{SELECT} WHERE a.owner = $1 AND a.hash = $2 AND a.bytes IS NOT NULL");
        let row = self.pool.query_opt(&sql, &[(&owner.as_str(), Type::TEXT), (&hash, Type::TEXT)]).await?;
        row.as_ref().map(attachment_row).transpose()
    }
}
