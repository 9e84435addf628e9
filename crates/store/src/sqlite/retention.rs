//! What is old enough to be deleted.

use super::attachment_links::{owner_and_path, release_if_unlinked};
use super::columns::{get_opt_u64, get_text, get_u64};
use super::write_task::TaskCost;
use super::{SqliteStore, page};
use async_trait::async_trait;
use model::ports::{Retention, RetentionWriter, StoreResult};
use model::seq::Millis;
use model::{ThreadId, UserId};
use rusqlite::{OptionalExtension, Row};

const RETENTION_TIME: &str = "retention_time";
/// A condition on `threads`; the parameter is the time.
const IDLE: &str =
    "updated_at < ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.thread = threads.num AND ended_at IS NULL)
                    AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.thread = threads.num)";

#[async_trait]
impl Retention for SqliteStore {
    async fn idle_threads(
        &self,
        since: Millis,
        after: Option<&ThreadId>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, ThreadId)>> {
        let after = after.map(ToString::to_string).unwrap_or_default();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(move |conn| {
            let sql = format!("SELECT owner, id FROM threads WHERE {IDLE} AND id > ?2 ORDER BY id LIMIT ?3");
            let pair = |row: &Row<'_>| Ok((UserId::from(get_text(row, 0)?), ThreadId::from(get_text(row, 1)?)));
            conn.prepare_cached(&sql)?.query_map((since.cast_signed(), after, limit), pair)?.collect()
        })
        .await
    }

    async fn unused_files(
        &self,
        since: Millis,
        after: Option<&(UserId, String)>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, String)>> {
        let (owner, path) = after.map_or_else(Default::default, |(owner, path)| (owner.to_string(), path.clone()));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(move |conn| {
            let sql =
                "SELECT owner, path FROM attachments a WHERE created_at < ?1 AND bytes IS NOT NULL AND hash IS NULL
                       AND NOT EXISTS (SELECT 1 FROM attachment_uses u WHERE u.owner = a.owner AND u.path = a.path)
                       AND (owner, path) > (?2, ?3) ORDER BY owner, path LIMIT ?4";
            let wanted = (since.cast_signed(), owner, path, limit);
            conn.prepare_cached(sql)?.query_map(wanted, owner_and_path)?.collect()
        })
        .await
    }

    async fn retention_time(&self) -> StoreResult<Option<Millis>> {
        self.query(|conn| {
            let mut select = conn.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
            select.query_row([RETENTION_TIME], |row| get_u64(row, 0)).optional()
        })
        .await
    }

    async fn newest_activity(&self) -> StoreResult<Option<Millis>> {
        self.query(|conn| conn.query_row("SELECT max(updated_at) FROM threads", (), |row| get_opt_u64(row, 0))).await
    }
}

#[async_trait]
impl RetentionWriter for SqliteStore {
    async fn delete_idle_thread(&self, owner: &UserId, thread: &ThreadId, since: Millis) -> StoreResult<bool> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.call_writer(TaskCost::ROW, move |tx| {
            let Some(num) = page::find_owned_thread(tx.conn, &owner, &thread)? else { return Ok(Ok(false)) };
            let sql = format!("SELECT 1 FROM threads WHERE {IDLE} AND num = ?2");
            let is_idle = tx.conn.prepare_cached(&sql)?.exists((since.cast_signed(), num))?;
            if is_idle { tx.delete_thread(&owner, &thread).map(Ok) } else { Ok(Ok(false)) }
        })
        .await
    }

    async fn release_unused_file(&self, owner: &UserId, path: &str, since: Millis) -> StoreResult<bool> {
        let (owner, path) = (owner.clone(), path.to_owned());
        self.call_writer(TaskCost::ROW, move |tx| {
            let sql = "SELECT 1 FROM attachments WHERE owner = ?1 AND path = ?2 AND created_at < ?3 AND hash IS NULL";
            let is_old = tx.conn.prepare_cached(sql)?.exists((owner.as_str(), &path, since.cast_signed()))?;
            let released = is_old && release_if_unlinked(tx.conn, &owner, &path)?;
            tx.effects.has_deleted_content |= released;
            Ok(Ok(released))
        })
        .await
    }

    async fn set_retention_time(&self, at: Millis) -> StoreResult<()> {
        self.call_writer(TaskCost::ROW, move |tx| {
            tx.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", (RETENTION_TIME, at.cast_signed())).map(Ok)
        })
        .await
    }
}
