//! Links of files to threads that were never created, because a node crashed in between.

use super::attachment_rows::{lock_owner, release_if_unlinked};
use super::connection::{OpenTransaction, Params, column};
use super::pool::DatabasePool;
use model::UserId;
use model::ports::StoreResult;
use std::time::Duration;
use tokio_postgres::types::Type;

const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Another node may be creating the thread of a newer link.
const IS_ORPHANED: &str = "l.linked_at < clock_timestamp() - interval '1 hour' AND NOT EXISTS
    (SELECT 1 FROM headwater.threads t WHERE t.id = l.thread AND t.owner = l.owner)";

/// Removes them from time to time. The files without further links are deleted at the next start of a node.
pub(super) async fn remove_orphaned_links(pool: DatabasePool) {
    loop {
        if let Err(error) = remove_all(&pool).await {
            tracing::warn!(%error, "files of threads that were never created stay for now");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn remove_all(pool: &DatabasePool) -> StoreResult<()> {
    let sql = format!("SELECT DISTINCT l.owner FROM headwater.attachment_links l WHERE {IS_ORPHANED}");
    for row in pool.query(&sql, &[]).await? {
        remove_of_owner(pool, &UserId::from(column::<&str>(&row, 0)?)).await?;
    }
    Ok(())
}

async fn remove_of_owner(pool: &DatabasePool, owner: &UserId) -> StoreResult<()> {
    let tx = OpenTransaction::begin(pool).await?;
    lock_owner(&tx, owner).await?;
    // An uploaded file stays without a thread; a blob does not.
    let sql = format!(
        "WITH removed AS (DELETE FROM headwater.attachment_links l WHERE l.owner = $1 AND {IS_ORPHANED} RETURNING l.path)
         SELECT DISTINCT r.path FROM removed r JOIN headwater.attachments a ON a.owner = $1 AND a.path = r.path
         WHERE a.hash IS NOT NULL"
    );
    let params: Params<'_> = &[(&owner.as_str(), Type::TEXT)];
    for row in tx.query(&sql, params).await? {
        release_if_unlinked(&tx, owner, column(&row, 0)?).await?;
    }
    tx.commit().await
}
