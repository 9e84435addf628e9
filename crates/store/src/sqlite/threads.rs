//! Threads and their aliases.

use super::columns::{get_text, get_u64, page_bounds};
use super::record_index::IndexUpdate;
use super::thread_extents::Extent;
use super::transaction::WriteTransaction;
use super::write_task::TaskCost;
use super::{SqliteStore, aliases, attachment_links, log_size, page};
use async_trait::async_trait;
use model::id::UNLISTED_THREAD_PREFIX;
use model::ports::{
    AliasKind, AliasRow, AliasUpdate, ConversationData, ListPage, StoreResult, ThreadRow, ThreadWriter, Threads,
};
use model::seq::Seq;
use model::{ThreadId, UserId};
use rusqlite::{OptionalExtension, Row};

/// The tables whose rows belong to a thread by its number, but `records`.
const TABLES_OF_THREADS: [&str; 10] = [
    "blocks",
    "condensed",
    "runs",
    "inbox",
    "checkpoints",
    "checkpoint_runs",
    "idempotency",
    "approvals",
    "client_results",
    "shares",
];

#[async_trait]
impl Threads for SqliteStore {
    async fn threads(&self, owner: &UserId, page: ListPage) -> StoreResult<Vec<ThreadRow>> {
        let owner = owner.clone();
        self.query(move |conn| {
            let sql = "SELECT id, created_at, updated_at FROM threads
                       WHERE owner = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
            let (before, limit) = page_bounds(&page);
            let before = before.min(UNLISTED_THREAD_PREFIX);
            conn.prepare_cached(sql)?.query_map((owner.as_str(), before, limit), thread_row)?.collect()
        })
        .await
    }

    async fn thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<ThreadRow>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.query(move |conn| {
            let sql = "SELECT id, created_at, updated_at FROM threads WHERE id = ?1 AND owner = ?2";
            conn.prepare_cached(sql)?.query_row((thread.as_str(), owner.as_str()), thread_row).optional()
        })
        .await
    }

    async fn alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<Option<AliasRow>> {
        let (owner, name) = (owner.clone(), name.to_owned());
        self.query(move |conn| aliases::find_alias(conn, &owner, kind, &name)).await
    }

    async fn log_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        self.read_log_bytes(owner).await
    }
}

#[async_trait]
impl ThreadWriter for SqliteStore {
    async fn delete_thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<bool> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.call_writer_for_relief(move |tx| tx.delete_thread(&owner, &thread).map(Ok)).await
    }

    async fn create_alias(&self, owner: &UserId, row: AliasRow) -> StoreResult<AliasRow> {
        let (owner, cost) = (owner.clone(), TaskCost::row_with_text(&row.data.to_stored()));
        self.call_writer(cost, move |tx| aliases::insert_alias(tx.conn, &owner, row).map(Ok)).await
    }

    async fn update_conversation(
        &self,
        owner: &UserId,
        current: &AliasRow,
        data: ConversationData,
    ) -> StoreResult<AliasUpdate> {
        let (owner, current) = (owner.clone(), current.clone());
        let cost = TaskCost::row_with_text(&data.to_stored());
        self.call_writer(cost, move |tx| aliases::update_conversation(tx.conn, &owner, &current, &data).map(Ok)).await
    }

    async fn delete_alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<bool> {
        let (owner, name) = (owner.clone(), name.to_owned());
        self.call_writer_for_relief(move |tx| {
            let deleted = aliases::delete_alias(tx.conn, &owner, kind, &name)?;
            tx.effects.has_deleted_content |= deleted;
            Ok(Ok(deleted))
        })
        .await
    }
}

impl WriteTransaction<'_> {
    /// Deletes a thread with all its rows. Links may exist even if the thread does not.
    pub(super) fn delete_thread(&mut self, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<bool> {
        self.effects.has_deleted_content |= attachment_links::unlink_thread(self.conn, owner, thread)?;
        let Some(num) = page::find_owned_thread(self.conn, owner, thread)? else { return Ok(false) };
        if self.state.index.read_plan(thread, Seq::ZERO, 0).is_some_and(|plan| plan.damaged_at.is_some()) {
            // The index lacks some rows of a damaged thread: scan the table.
            self.conn.execute("DELETE FROM records WHERE thread = ?1", [num])?;
        }
        let mut delete =
            self.conn.prepare_cached("DELETE FROM records WHERE pos >= ?1 AND pos < ?2 AND thread = ?3")?;
        let dead: Vec<_> = self.state.dead_rows.ranges_of_thread(num).collect();
        let live = self.thread_extents(thread, num).into_iter().map(|extent| (extent.pos, extent.end_pos()));
        for (pos, end) in live.chain(dead) {
            delete.execute((pos, end, num))?;
        }
        for table in TABLES_OF_THREADS {
            self.execute(&format!("DELETE FROM {table} WHERE thread = ?1"), [num])?;
        }
        log_size::subtract_thread(self.conn, num)?;
        self.execute("DELETE FROM names WHERE thread = ?1 AND owner = ?2", (thread.as_str(), owner.as_str()))?;
        self.execute("DELETE FROM threads WHERE num = ?1", [num])?;
        self.state.threads.remove(thread);
        self.state.epochs.remove(&num);
        self.state.tails.take(num);
        self.effects.index_updates.push(IndexUpdate::ThreadDeleted { thread: thread.clone() });
        self.effects.has_deleted_content = true;
        Ok(true)
    }

    /// The positions of the thread's rows, including those of this transaction.
    fn thread_extents(&self, thread: &ThreadId, num: i64) -> Vec<Extent> {
        let published = self.state.index.read_plan(thread, Seq::ZERO, usize::MAX).filter(|plan| plan.num == num);
        let mut extents = published.map(|plan| plan.extents).unwrap_or_default();
        extents.extend(self.effects.index_updates.iter().filter_map(|update| match update {
            IndexUpdate::Appended { num: appended_to, extent, .. } if *appended_to == num => Some(*extent),
            IndexUpdate::Appended { .. }
            | IndexUpdate::Logged { .. }
            | IndexUpdate::ThreadClaimed { .. }
            | IndexUpdate::Packed { .. }
            | IndexUpdate::RunEnded { .. }
            | IndexUpdate::ThreadDeleted { .. } => None,
        }));
        extents
    }
}

fn thread_row(row: &Row<'_>) -> rusqlite::Result<ThreadRow> {
    Ok(ThreadRow { id: ThreadId::from(get_text(row, 0)?), created_at: get_u64(row, 1)?, updated_at: get_u64(row, 2)? })
}
