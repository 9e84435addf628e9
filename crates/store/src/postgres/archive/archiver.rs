//! Moves runs into the archive, segment by segment. Every segment is a transaction of its own, so that a long run holds the
//! lock of its thread only briefly, and what was archived before a crash stays so.

use super::objects;
use super::segments::SegmentReader;
use super::{ArchiveOptions, ArchiveStats};
use crate::block_coding::{compress_block, encode_record, record_bytes_in_block};
use crate::postgres::connection::{OpenTransaction, Params, column, limit_param, u64_column};
use crate::postgres::pool::DatabasePool;
use crate::postgres::records::decode_any_record;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use model::ThreadId;
use model::defects::Defect;
use model::ports::{ArchiveError, RecordArchive, StoreError, StoreResult};
use model::seq::Seq;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// Runs that are claimed at once, and those of them that are archived at the same time.
const RUNS_PER_CLAIM: i64 = 8;
const RUNS_AT_ONCE: usize = 4;
/// Maximum number of records in a segment: its transaction deletes as many rows.
const SEGMENT_RECORDS_MAX: usize = 16_384;

/// Claims runs for ten minutes: after a crash another node archives them. While a node is alive that cannot read the archive,
/// such as one that was not restarted yet with the setting, nothing is archived.
const CLAIM_RUNS: &str = "
    WITH due AS (
        SELECT num FROM headwater.runs r
        WHERE ended_at IS NOT NULL AND first_seq IS NOT NULL AND NOT is_archived
          AND ended_at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1
          AND (archive_claim IS NULL OR archive_claim <= clock_timestamp())
          AND EXISTS (SELECT 1 FROM headwater.threads WHERE num = r.thread)
          AND NOT EXISTS (SELECT 1 FROM headwater.nodes WHERE lease_until > clock_timestamp() AND NOT has_archive)
        ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    UPDATE headwater.runs r SET archive_claim = clock_timestamp() + interval '10 min'
    FROM due, headwater.threads t WHERE r.num = due.num AND t.num = r.thread
    RETURNING r.num, r.thread, t.id, r.first_seq, r.last_seq";

const FIND_NODE_WITHOUT_ARCHIVE: &str = "
    SELECT id FROM headwater.nodes WHERE lease_until > clock_timestamp() AND NOT has_archive ORDER BY id LIMIT 1";

/// The columns are those of a page, and the number of the run.
const SELECT_RECORDS: &str = "
    SELECT NULL, p.seq, p.at, p.epoch, p.format, p.checksum, p.public, p.private, r.id, p.run FROM (
        SELECT *, sum(octet_length(public) + coalesce(octet_length(private), 0)) OVER (ORDER BY seq) AS bytes
        FROM (SELECT * FROM headwater.records WHERE thread = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4) first
    ) p LEFT JOIN headwater.runs r ON r.num = p.run
    WHERE p.bytes - octet_length(p.public) - coalesce(octet_length(p.private), 0) < $5 ORDER BY p.seq";

const FIND_SEGMENT: &str = "
    SELECT last_seq FROM headwater.segments WHERE thread = $1 AND first_seq <= $2 AND last_seq >= $2
    ORDER BY first_seq DESC LIMIT 1";

/// Moves runs, and deletes objects that nobody refers to.
#[derive(Debug)]
pub(in super::super) struct Archiver {
    /// Connections of its own: it must not delay readers.
    pub(super) pool: DatabasePool,
    pub(super) archive: Arc<dyn RecordArchive>,
    pub(super) reader: Arc<SegmentReader>,
    after: Duration,
    interval: Duration,
    segment_bytes_max: usize,
    stats: Mutex<ArchiveStats>,
}

/// A run that this node has claimed.
struct ClaimedRun {
    num: i64,
    thread: i64,
    thread_id: ThreadId,
    first: Seq,
    last: Seq,
}

/// Consecutive records of one run, ready to be stored.
struct NewSegment {
    first: Seq,
    last: Seq,
    /// The number of the run of all its records.
    run: i64,
    raw_bytes: usize,
    object: Bytes,
}

/// Why a run was not archived.
#[derive(Debug)]
enum ArchiveRunError {
    /// The thread was deleted, or another node has archived the run.
    Gone,
    Damaged(Seq),
    Store(StoreError),
}

impl From<StoreError> for ArchiveRunError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ArchiveError> for ArchiveRunError {
    fn from(error: ArchiveError) -> Self {
        Self::Store(archive_error(&error))
    }
}

pub(super) fn archive_error(error: &ArchiveError) -> StoreError {
    StoreError::Unavailable(format!("the archive: {error}"))
}

impl Archiver {
    pub(in super::super) fn new(pool: DatabasePool, options: &ArchiveOptions) -> Self {
        let archive = Arc::clone(&options.place.archive);
        Self {
            pool,
            reader: Arc::new(SegmentReader::new(Arc::clone(&archive), options.cache_bytes_max)),
            archive,
            after: options.after,
            interval: options.interval,
            segment_bytes_max: options.segment_bytes_max.max(1),
            stats: Mutex::default(),
        }
    }

    pub(in super::super) fn reader(&self) -> Arc<SegmentReader> {
        Arc::clone(&self.reader)
    }

    /// Later operations fail.
    pub(in super::super) fn close(&self) {
        self.pool.close();
    }

    pub(super) fn stats(&self) -> ArchiveStats {
        let stats = *self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        ArchiveStats { reads: self.reader.reads.load(Ordering::Relaxed), ..stats }
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut ArchiveStats)) {
        add(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Archives and sweeps until the store is closed.
    pub(in super::super) async fn run(self: Arc<Self>) {
        let mut waits_for = None;
        loop {
            tokio::time::sleep(self.interval).await;
            match self.archive_ended_runs().await {
                Ok(0) => self.report_waiting(&mut waits_for).await,
                Ok(runs) => tracing::info!(runs, "archived runs"),
                Err(error) => tracing::warn!(%error, "runs cannot be archived now: they stay in the database"),
            }
            if let Err(error) = self.sweep_objects().await {
                tracing::warn!(%error, "deleted objects stay in the archive for now");
            }
        }
    }

    /// Says once which node has to be restarted with the setting before anything is archived.
    async fn report_waiting(&self, waits_for: &mut Option<String>) {
        // An error is reported by the next attempt to archive.
        let Ok(row) = self.pool.query_opt(FIND_NODE_WITHOUT_ARCHIVE, &[]).await else { return };
        let node = row.and_then(|row| column::<String>(&row, 0).ok());
        if let Some(node) = node.as_ref().filter(|node| waits_for.as_ref() != Some(*node)) {
            tracing::warn!(%node, "nothing is archived while this node runs: its [database] archive is not set");
        }
        *waits_for = node;
    }

    pub(super) async fn archive_ended_runs(&self) -> StoreResult<u64> {
        let mut archived = 0;
        loop {
            let claimed = self.claim_runs().await?;
            if claimed.is_empty() {
                return Ok(archived);
            }
            let archiving = claimed.into_iter().map(|run| async move {
                let result = self.archive_run(&run).await;
                (run, result)
            });
            let results: Vec<_> = stream::iter(archiving).buffer_unordered(RUNS_AT_ONCE).collect().await;
            let (mut failed, mut failure) = (Vec::new(), None);
            for (run, result) in results {
                match result {
                    Ok(()) => archived += 1,
                    Err(ArchiveRunError::Gone) => {}
                    Err(ArchiveRunError::Damaged(seq)) => {
                        self.count(|stats| stats.failures += 1);
                        tracing::error!(thread = %run.thread_id, %seq, "a run cannot be archived: damaged");
                        self.postpone(&[run.num], "1 day").await?;
                    }
                    Err(ArchiveRunError::Store(error)) => {
                        self.count(|stats| stats.failures += 1);
                        failed.push(run.num);
                        failure = Some(error);
                    }
                }
            }
            if let Some(failure) = failure {
                self.postpone(&failed, "0 s").await?;
                return Err(failure);
            }
        }
    }

    async fn claim_runs(&self) -> StoreResult<Vec<ClaimedRun>> {
        let after_ms = i64::try_from(self.after.as_millis()).unwrap_or(i64::MAX);
        let tx = OpenTransaction::begin(&self.pool).await?;
        let rows = tx.query(CLAIM_RUNS, &[(&after_ms, Type::INT8), (&RUNS_PER_CLAIM, Type::INT8)]).await?;
        // A lost claim expires.
        tx.commit_without_token().await?;
        let decode = |row: &Row| {
            Ok(ClaimedRun {
                num: column(row, 0)?,
                thread: column(row, 1)?,
                thread_id: ThreadId::from(column::<&str>(row, 2)?),
                first: Seq(u64_column(row, 3)?),
                last: Seq(column::<Option<i64>>(row, 4)?.unwrap_or_default().cast_unsigned()),
            })
        };
        rows.iter().map(decode).collect()
    }

    /// Leaves claimed runs alone for this long.
    async fn postpone(&self, runs: &[i64], interval: &str) -> StoreResult<()> {
        let sql = format!(
            "UPDATE headwater.runs SET archive_claim = clock_timestamp() + interval '{interval}' WHERE num = ANY($1)"
        );
        self.pool.execute(&sql, &[(&runs, Type::INT8_ARRAY)]).await.map(drop)
    }

    async fn archive_run(&self, run: &ClaimedRun) -> Result<(), ArchiveRunError> {
        let mut after = run.first.prev();
        while after < run.last {
            let Some(segment) = self.read_segment(run, after).await? else {
                // An earlier attempt, or a run that overlaps, has archived what follows.
                after = self.find_archived(run.thread, after.next()).await?;
                continue;
            };
            after = segment.last;
            self.store_segment(run, segment).await?;
        }
        self.finish_run(run).await
    }

    /// The next segment; `None` if its first record is not in the database.
    async fn read_segment(&self, run: &ClaimedRun, after: Seq) -> Result<Option<NewSegment>, ArchiveRunError> {
        let params: Params<'_> = &[
            (&run.thread, Type::INT8),
            (&after.0.cast_signed(), Type::INT8),
            (&run.last.0.cast_signed(), Type::INT8),
            (&limit_param(SEGMENT_RECORDS_MAX), Type::INT8),
            (&limit_param(self.segment_bytes_max), Type::INT8),
        ];
        let rows = self.pool.query(SELECT_RECORDS, params).await?;
        let first = after.next();
        let (mut raw, mut next, mut owner) = (Vec::new(), first, None);
        for row in &rows {
            let (found, run_num) = (u64_column(row, 1)?, column::<i64>(row, 9)?);
            if found != next.0 || *owner.get_or_insert(run_num) != run_num {
                break;
            }
            match decode_any_record(row)?.filter(|record| record.has_valid_checksum(&run.thread_id)) {
                Some(_) if Defect::ArchiveSkipsARecord.is_planted() && next.0.is_multiple_of(16) => {}
                Some(record) => encode_record(&mut raw, &record),
                None if next == first => return Err(ArchiveRunError::Damaged(next)),
                None => break,
            }
            next = next.next();
        }
        let (Some(owner), true) = (owner, next > first) else { return Ok(None) };
        let raw_bytes = raw.len();
        let packing = tokio::task::spawn_blocking(move || Bytes::from(compress_block(&raw)));
        let object = packing.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Some(NewSegment { first, last: next.prev(), run: owner, raw_bytes, object }))
    }

    /// The last record of the segment that has this one.
    async fn find_archived(&self, thread: i64, seq: Seq) -> Result<Seq, ArchiveRunError> {
        let params: Params<'_> = &[(&thread, Type::INT8), (&seq.0.cast_signed(), Type::INT8)];
        if let Some(row) = self.pool.query_opt(FIND_SEGMENT, params).await? {
            return Ok(Seq(u64_column(&row, 0)?));
        }
        let sql = "SELECT 1 FROM headwater.threads WHERE num = $1";
        let found = self.pool.query_opt(sql, &[(&thread, Type::INT8)]).await?;
        Err(found.map_or(ArchiveRunError::Gone, |_| ArchiveRunError::Damaged(seq)))
    }

    async fn store_segment(&self, run: &ClaimedRun, segment: NewSegment) -> Result<(), ArchiveRunError> {
        let (first, last) = (segment.first, segment.last);
        let suffix = RandomState::new().hash_one((run.num, first.0, last.0));
        let name = format!("{}/{first}-{last}-{suffix:016x}", run.thread);
        objects::note_upload(&self.pool, &name).await?;
        self.archive.put(&name, segment.object.clone()).await?;
        let tx = OpenTransaction::begin(&self.pool).await?;
        if let Err(error) = replace_records(&tx, run, &segment, &name).await {
            tx.rollback().await;
            // Nobody will ever refer to the object.
            self.discard_object(&name).await?;
            return Err(error);
        }
        // If the outcome stays unknown, so does whether the object is referred to: its note tells, if there is one.
        tx.commit().await?;
        let records = last.next().0 - first.0;
        self.count(|stats| {
            stats.segments += 1;
            stats.record_bytes += record_bytes_in_block(segment.raw_bytes as u64, records);
            stats.object_bytes += segment.object.len() as u64;
        });
        tracing::debug!(thread = %run.thread_id, %first, %last, bytes = segment.object.len(), "archived records");
        Ok(())
    }

    async fn finish_run(&self, run: &ClaimedRun) -> Result<(), ArchiveRunError> {
        let sql = "UPDATE headwater.runs SET is_archived = true, archive_claim = NULL
                   WHERE num = $1 AND NOT is_archived AND ended_at IS NOT NULL";
        let tx = OpenTransaction::begin(&self.pool).await?;
        lock_thread(&tx, run.thread).await?;
        let changed = tx.execute(sql, &[(&run.num, Type::INT8)]).await?;
        tx.commit().await?;
        if changed == 0 {
            return Err(ArchiveRunError::Gone);
        }
        self.count(|stats| stats.runs += 1);
        Ok(())
    }
}

async fn lock_thread(tx: &OpenTransaction<'_>, thread: i64) -> Result<(), ArchiveRunError> {
    let sql = "SELECT 1 FROM headwater.threads WHERE num = $1 FOR UPDATE";
    tx.query_opt(sql, &[(&thread, Type::INT8)]).await?.map(drop).ok_or(ArchiveRunError::Gone)
}

/// Replaces records by their segment.
async fn replace_records(
    tx: &OpenTransaction<'_>,
    run: &ClaimedRun,
    segment: &NewSegment,
    name: &str,
) -> Result<(), ArchiveRunError> {
    let (first, last) = (segment.first.0.cast_signed(), segment.last.0.cast_signed());
    lock_thread(tx, run.thread).await?;
    // Also claims the run for longer: it may have many segments.
    let sql = "UPDATE headwater.runs SET archive_claim = clock_timestamp() + interval '10 min'
               WHERE num = $1 AND NOT is_archived AND ended_at IS NOT NULL";
    if tx.execute(sql, &[(&run.num, Type::INT8)]).await? == 0 || !objects::take_upload(tx, name).await? {
        return Err(ArchiveRunError::Gone);
    }
    let range: Params<'_> = &[(&run.thread, Type::INT8), (&first, Type::INT8), (&last, Type::INT8)];
    let sql = "DELETE FROM headwater.records WHERE thread = $1 AND seq BETWEEN $2 AND $3";
    if tx.execute(sql, range).await? != (last - first + 1).cast_unsigned() {
        return Err(ArchiveRunError::Gone);
    }
    let sql = "INSERT INTO headwater.segments (thread, first_seq, last_seq, run, raw_bytes, object)
               VALUES ($1, $2, $3, $4, $5, $6)";
    let raw_bytes = i64::try_from(segment.raw_bytes).unwrap_or(i64::MAX);
    let columns: Params<'_> = &[
        (&run.thread, Type::INT8),
        (&first, Type::INT8),
        (&last, Type::INT8),
        (&segment.run, Type::INT8),
        (&raw_bytes, Type::INT8),
        (&name, Type::TEXT),
    ];
    tx.execute(sql, columns).await?;
    Ok(())
}
