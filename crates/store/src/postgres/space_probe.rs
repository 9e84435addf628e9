//! Finds out when a full disk has room again.

use super::connection::OpenTransaction;
use super::pool::DatabasePool;
use crate::space_state::SpaceState;
use model::ports::{StorageSpace, StoreResult};
use std::sync::Arc;
use std::time::Duration;

const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Records of a thread that does not exist, in the table where the room is needed: what a deletion has freed in its file is of
/// no use to other tables. Random bytes, because others would be compressed.
const INSERT: &str = "
    INSERT INTO headwater.records (thread, seq, run, at, epoch, format, checksum, public)
    SELECT -1, n, 0, 0, 0, 0, 0, (SELECT decode(string_agg(md5(m || '/' || n || '/' || random()), ''), 'hex')
                                  FROM generate_series(1, 64) m)
    FROM generate_series(1, 64) n";

/// While the disk is full, tries whether a small write succeeds again.
pub(super) async fn probe_space(pool: DatabasePool, space: Arc<SpaceState>) {
    loop {
        space.changed_from(StorageSpace::Available).await;
        while space.is_full() {
            tokio::time::sleep(PROBE_INTERVAL).await;
            match try_to_write(&pool).await {
                Ok(()) => _ = space.set(StorageSpace::Available),
                Err(error) => tracing::debug!(%error, "a full disk is tried again"),
            }
        }
    }
}

/// Leaves nothing behind.
async fn try_to_write(pool: &DatabasePool) -> StoreResult<()> {
    let tx = OpenTransaction::begin(pool).await?;
    let written = tx.execute(INSERT, &[]).await;
    tx.rollback().await;
    written.map(drop)
}
