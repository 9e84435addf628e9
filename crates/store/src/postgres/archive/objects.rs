//! The objects that are to be deleted, and those whose upload has begun.
//!
//! A sweep first makes a note its own, in a transaction that ends before the object is deleted: an upload that finds its note
//! taken does not refer to the object any more. The note is removed last, so a crash repeats the deletion.

use super::archiver::{Archiver, archive_error};
use crate::postgres::connection::{OpenTransaction, Params, column, limit_param};
use crate::postgres::pool::DatabasePool;
use futures_util::stream::{self, StreamExt as _};
use model::ports::{ArchiveError, StoreResult};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// An upload has failed by then.
const NOTE_UPLOAD: &str = "
    INSERT INTO headwater.archive_objects (name, due_at, is_upload) VALUES ($1, clock_timestamp() + interval '1 h', true)";
const DISCARD: &str = "
    INSERT INTO headwater.archive_objects (name, due_at, is_upload) VALUES ($1, clock_timestamp(), false)
    ON CONFLICT (name) DO UPDATE SET due_at = clock_timestamp(), is_upload = false";
/// Takes notes that are due, of all objects or of a range of names. Those that fail are tried again after a minute.
const TAKE_DUE: &str = "
    WITH due AS (
        SELECT name FROM headwater.archive_objects WHERE due_at <= clock_timestamp() AND name >= $1 AND name < $2
        ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED
    )
    UPDATE headwater.archive_objects o SET is_upload = false, due_at = clock_timestamp() + interval '1 min'
    FROM due WHERE o.name = due.name RETURNING o.name";
const SELECT_UPLOADS: &str = "
    SELECT name FROM headwater.archive_objects WHERE is_upload AND name >= $1 AND name < $2 ORDER BY name LIMIT $3";

const OBJECTS_PER_SWEEP: usize = 100;
const DELETES_AT_ONCE: usize = 8;
/// How long a request waits for the deletion of its thread's objects. The sweep deletes the rest.
const THREAD_TIMEOUT: Duration = Duration::from_secs(30);
/// No name begins with it, and all are before it.
const AFTER_ALL_NAMES: &str = "~";

/// Notes that the object is about to exist.
pub(super) async fn note_upload(pool: &DatabasePool, name: &str) -> StoreResult<()> {
    pool.execute(NOTE_UPLOAD, &[(&name, Type::TEXT)]).await.map(drop)
}

/// Removes the note of an upload; false if a sweep has taken it.
pub(super) async fn take_upload(tx: &OpenTransaction<'_>, name: &str) -> StoreResult<bool> {
    let sql = "DELETE FROM headwater.archive_objects WHERE name = $1 AND is_upload";
    Ok(tx.execute(sql, &[(&name, Type::TEXT)]).await? == 1)
}

impl Archiver {
    /// Deletes an object that nobody refers to.
    pub(super) async fn discard_object(&self, name: &str) -> StoreResult<()> {
        self.pool.execute(DISCARD, &[(&name, Type::TEXT)]).await?;
        self.delete_noted(&self.pool, &[name.to_owned()]).await
    }

    /// Deletes the objects that are due.
    pub(super) async fn sweep_objects(&self) -> StoreResult<u64> {
        self.sweep_range(&self.pool, ("", AFTER_ALL_NAMES)).await
    }

    /// Deletes the objects of a thread that was deleted, and what an upload that is in progress may have stored of it. The
    /// upload keeps its note: it will notice that the thread is gone, or its process will end. A client waits, so the pool is not
    /// the archiver's.
    pub(in super::super) async fn delete_thread_objects(&self, pool: &DatabasePool, thread: i64) {
        self.reader.forget_thread(thread);
        // `0` follows `/`.
        let (from, to) = (format!("{thread}/"), format!("{thread}0"));
        let deleting = async {
            self.sweep_range(pool, (&from, &to)).await?;
            let params: Params<'_> =
                &[(&from, Type::TEXT), (&to, Type::TEXT), (&limit_param(OBJECTS_PER_SWEEP), Type::INT8)];
            let uploads: Vec<String> = names(&pool.query(SELECT_UPLOADS, params).await?)?;
            let (_, failure) = self.delete_objects(&uploads).await;
            failure.map_or(Ok(()), |error| Err(archive_error(&error)))
        };
        match tokio::time::timeout(THREAD_TIMEOUT, deleting).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a deleted thread stays in the archive for now"),
            Err(_) => tracing::warn!("a deleted thread stays in the archive for now: it does not answer in time"),
        }
    }

    async fn sweep_range(&self, pool: &DatabasePool, (from, to): (&str, &str)) -> StoreResult<u64> {
        let mut swept = 0;
        loop {
            let tx = OpenTransaction::begin(pool).await?;
            let params: Params<'_> =
                &[(&from, Type::TEXT), (&to, Type::TEXT), (&limit_param(OBJECTS_PER_SWEEP), Type::INT8)];
            let due = names(&tx.query(TAKE_DUE, params).await?)?;
            tx.commit_without_token().await?;
            if due.is_empty() {
                return Ok(swept);
            }
            self.delete_noted(pool, &due).await?;
            swept += due.len() as u64;
        }
    }

    /// Deletes objects, and then their notes. One that cannot be deleted does not keep the others.
    async fn delete_noted(&self, pool: &DatabasePool, objects: &[String]) -> StoreResult<()> {
        let (deleted, failure) = self.delete_objects(objects).await;
        let sql = "DELETE FROM headwater.archive_objects WHERE name = ANY($1)";
        pool.execute(sql, &[(&deleted, Type::TEXT_ARRAY)]).await?;
        self.count(|stats| stats.deleted_objects += deleted.len() as u64);
        tracing::debug!(objects = deleted.len(), "deleted objects of the archive");
        failure.map_or(Ok(()), |error| Err(archive_error(&error)))
    }

    /// Returns the objects that were deleted, and an error of another one.
    async fn delete_objects(&self, objects: &[String]) -> (Vec<String>, Option<ArchiveError>) {
        let deleting = objects.iter().cloned().map(|name| async move {
            let result = self.archive.delete(&name).await;
            (name, result)
        });
        let results: Vec<_> = stream::iter(deleting).buffer_unordered(DELETES_AT_ONCE).collect().await;
        let (mut deleted, mut failure) = (Vec::new(), None);
        for (name, result) in results {
            match result {
                Ok(()) => deleted.push(name),
                Err(error) => failure = Some(error),
            }
        }
        (deleted, failure)
    }
}

fn names(rows: &[Row]) -> StoreResult<Vec<String>> {
    rows.iter().map(|row| column(row, 0)).collect()
}
