//! The rows of files and of links from threads to files, in a transaction.
//!
//! Every transaction that changes a user's files first takes the user's advisory lock, so that quotas and links hold under
//! concurrency. It precedes the lock of a thread. The lock of a row would need a row, for which a full disk has no room.

use super::connection::{OpenTransaction, Params, bytes_text_column, column, opt_u64_column, u64_column};
use futures_util::future::try_join;
use model::ports::validation;
use model::ports::{AttachmentOutcome, AttachmentRow, StoreResult};
use model::{ThreadId, UserId};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// The columns that [`attachment_row`] reads.
pub(super) const SELECT: &str =
    "SELECT a.path, a.name, a.content_type, a.bytes, a.created_at, a.hash FROM headwater.attachments a";

/// Makes the keys of users' locks differ from those of other locks: `file` in ASCII.
const LOCK_SEED: i64 = 0x6669_6c65;

/// Locks a user's files and returns their size. The second statement sees what the previous holder of the lock did.
pub(super) async fn lock_owner(tx: &OpenTransaction<'_>, owner: &UserId) -> StoreResult<u64> {
    let owner: (&(dyn ToSql + Sync), Type) = (&owner.as_str(), Type::TEXT);
    let lock_params = [owner.clone(), (&LOCK_SEED, Type::INT8)];
    let sum_params = [owner];
    let locked = tx.query("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", &lock_params);
    let sum = tx.query_opt("SELECT bytes FROM headwater.attachment_sums WHERE owner = $1", &sum_params);
    let (_, sum) = try_join(locked, sum).await?;
    sum.map_or(Ok(0), |row| u64_column(&row, 0))
}

async fn add_stored_bytes(tx: &OpenTransaction<'_>, owner: &UserId, change: i64) -> StoreResult<()> {
    let sql = "INSERT INTO headwater.attachment_sums AS s VALUES ($1, greatest($2, 0))
               ON CONFLICT (owner) DO UPDATE SET bytes = greatest(s.bytes + $2, 0)";
    tx.execute(sql, &[(&owner.as_str(), Type::TEXT), (&change, Type::INT8)]).await.map(drop)
}

pub(super) enum AttachmentState {
    Reserved,
    /// The size in bytes.
    Committed(u64),
    Unreferenced,
}

pub(super) async fn attachment_state(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    path: &str,
) -> StoreResult<Option<AttachmentState>> {
    let sql = "SELECT bytes, released FROM headwater.attachments WHERE owner = $1 AND path = $2";
    let Some(row) = tx.query_opt(sql, &[(&owner.as_str(), Type::TEXT), (&path, Type::TEXT)]).await? else {
        return Ok(None);
    };
    Ok(Some(match opt_u64_column(&row, 0)? {
        Some(bytes) => AttachmentState::Committed(bytes),
        None if column(&row, 1)? => AttachmentState::Unreferenced,
        None => AttachmentState::Reserved,
    }))
}

/// Commits a file unless the user's files would exceed the maximum.
pub(super) async fn insert_attachment(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    row: &AttachmentRow,
    used: u64,
    bytes_max: Option<u64>,
) -> StoreResult<AttachmentOutcome> {
    match attachment_state(tx, owner, &row.path).await? {
        Some(AttachmentState::Committed(_)) => return Ok(AttachmentOutcome::Stored),
        // The pending clean-up of the path would delete the new bytes.
        Some(AttachmentState::Unreferenced) => return Err(validation::path_taken_error(&row.path)),
        Some(AttachmentState::Reserved) | None => {}
    }
    if bytes_max.is_some_and(|most| used.saturating_add(row.size_bytes) > most) {
        return Ok(AttachmentOutcome::QuotaExceeded { used });
    }
    let sql = "INSERT INTO headwater.attachments VALUES ($1, $2, $3, $4, $5, $6, $7, false)
               ON CONFLICT (owner, path) DO UPDATE SET name = excluded.name, content_type = excluded.content_type,
               bytes = excluded.bytes, created_at = excluded.created_at, hash = excluded.hash, released = false";
    let bytes = row.size_bytes.cast_signed();
    let params: Params<'_> = &[
        (&owner.as_str(), Type::TEXT),
        (&row.path, Type::TEXT),
        (&row.name.as_bytes(), Type::BYTEA),
        (&row.content_type, Type::TEXT),
        (&bytes, Type::INT8),
        (&row.created_at.cast_signed(), Type::INT8),
        (&row.hash, Type::TEXT),
    ];
    tx.execute(sql, params).await?;
    add_stored_bytes(tx, owner, bytes).await?;
    Ok(AttachmentOutcome::Stored)
}

/// Deletes a file with its links. Returns false when there is none.
pub(super) async fn delete_attachment(tx: &OpenTransaction<'_>, owner: &UserId, path: &str) -> StoreResult<bool> {
    let Some(state) = attachment_state(tx, owner, path).await? else { return Ok(false) };
    for table in ["attachments", "attachment_links"] {
        let sql = format!("DELETE FROM headwater.{table} WHERE owner = $1 AND path = $2");
        tx.execute(&sql, &[(&owner.as_str(), Type::TEXT), (&path, Type::TEXT)]).await?;
    }
    if let AttachmentState::Committed(bytes) = state {
        add_stored_bytes(tx, owner, bytes.cast_signed().saturating_neg()).await?;
    }
    Ok(true)
}

pub(super) async fn find_attachment(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    path: &str,
) -> StoreResult<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE a.owner = $1 AND a.path = $2 AND a.bytes IS NOT NULL");
    let row = tx.query_opt(&sql, &[(&owner.as_str(), Type::TEXT), (&path, Type::TEXT)]).await?;
    row.as_ref().map(attachment_row).transpose()
}

pub(super) async fn find_blob(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    hash: &str,
) -> StoreResult<Option<AttachmentRow>> {
    let sql = format!("{SELECT} WHERE a.owner = $1 AND a.hash = $2 AND a.bytes IS NOT NULL");
    let row = tx.query_opt(&sql, &[(&owner.as_str(), Type::TEXT), (&hash, Type::TEXT)]).await?;
    row.as_ref().map(attachment_row).transpose()
}

pub(super) async fn insert_link(
    tx: &OpenTransaction<'_>,
    owner: &UserId,
    thread: &ThreadId,
    path: &str,
) -> StoreResult<()> {
    let sql = "INSERT INTO headwater.attachment_links VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    let params: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&thread.as_str(), Type::TEXT), (&path, Type::TEXT)];
    tx.execute(sql, params).await.map(drop)
}

/// Removes a thread's links and releases files without further links.
pub(super) async fn unlink_thread(tx: &OpenTransaction<'_>, owner: &UserId, thread: &ThreadId) -> StoreResult<()> {
    lock_owner(tx, owner).await?;
    let sql = "DELETE FROM headwater.attachment_links WHERE owner = $1 AND thread = $2 RETURNING path";
    let rows = tx.query(sql, &[(&owner.as_str(), Type::TEXT), (&thread.as_str(), Type::TEXT)]).await?;
    for row in rows {
        release_if_unlinked(tx, owner, column(&row, 0)?).await?;
    }
    Ok(())
}

/// Releases a committed file unless a thread uses it. Returns whether it was released.
pub(super) async fn release_if_unlinked(tx: &OpenTransaction<'_>, owner: &UserId, path: &str) -> StoreResult<bool> {
    let sql = "SELECT bytes FROM headwater.attachments WHERE owner = $1 AND path = $2 AND bytes IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM headwater.attachment_links WHERE owner = $1 AND path = $2)";
    let key: Params<'_> = &[(&owner.as_str(), Type::TEXT), (&path, Type::TEXT)];
    let Some(row) = tx.query_opt(sql, key).await? else { return Ok(false) };
    let bytes: i64 = column(&row, 0)?;
    let sql = "UPDATE headwater.attachments
               SET released = true, name = '', content_type = '', bytes = NULL, hash = NULL
               WHERE owner = $1 AND path = $2";
    tx.execute(sql, key).await?;
    add_stored_bytes(tx, owner, bytes.saturating_neg()).await?;
    Ok(true)
}

pub(super) fn attachment_row(row: &Row) -> StoreResult<AttachmentRow> {
    Ok(AttachmentRow {
        path: column(row, 0)?,
        name: bytes_text_column(row, 1)?,
        content_type: column(row, 2)?,
        size_bytes: u64_column(row, 3)?,
        created_at: u64_column(row, 4)?,
        hash: column(row, 5)?,
    })
}

pub(super) fn owner_and_path(row: &Row) -> StoreResult<(UserId, String)> {
    Ok((UserId::from(column::<&str>(row, 0)?), column(row, 1)?))
}
