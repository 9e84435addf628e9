//! Which threads nodes are resuming: a row per thread, of the node that tries.

use super::PostgresStore;
use super::connection::{Params, column};
use async_trait::async_trait;
use model::ThreadId;
use model::ports::{RESUMES_MAX, RecoveryAttempts, StoreResult};
use std::collections::BTreeMap;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// Rows of nodes that live concern only these nodes, unless the thread is parked.
const SELECT: &str = "
    SELECT t.id, a.resumes FROM headwater.recovery_attempts a JOIN headwater.threads t ON t.num = a.thread
    WHERE a.resumes >= $1 OR NOT EXISTS
        (SELECT 1 FROM headwater.nodes n WHERE n.id = a.node AND n.lease_until > clock_timestamp())";

/// The threads are locked in the order in which appends do: a thread that is deleted leaves no row.
const REPLACE: &str = "
    WITH current AS (
        SELECT t.num, u.resumes FROM unnest($2, $3) AS u(id, resumes) JOIN headwater.threads t ON t.id = u.id
        ORDER BY t.num FOR KEY SHARE OF t
    ), removed AS (
        DELETE FROM headwater.recovery_attempts WHERE node = $1 AND thread NOT IN (SELECT num FROM current)
    )
    INSERT INTO headwater.recovery_attempts SELECT num, $1, resumes FROM current
    ON CONFLICT (thread) DO UPDATE SET node = excluded.node, resumes = excluded.resumes";

#[async_trait]
impl RecoveryAttempts for PostgresStore {
    async fn load(&self) -> StoreResult<BTreeMap<ThreadId, u32>> {
        let rows = self.pool.query(SELECT, &[(&RESUMES_MAX.cast_signed(), Type::INT4)]).await?;
        let attempt = |row: &Row| Ok((ThreadId::from(column::<&str>(row, 0)?), column::<i32>(row, 1)?.cast_unsigned()));
        rows.iter().map(attempt).collect()
    }

    async fn save(&self, attempts: &BTreeMap<ThreadId, u32>) -> StoreResult<()> {
        let (threads, resumes): (Vec<&str>, Vec<i32>) =
            attempts.iter().map(|(thread, resumes)| (thread.as_str(), resumes.cast_signed())).unzip();
        let params: Params<'_> =
            &[(&self.node.as_str(), Type::TEXT), (&threads, Type::TEXT_ARRAY), (&resumes, Type::INT4_ARRAY)];
        self.pool.execute(REPLACE, params).await.map(drop)
    }
}
