//! Reads a database for `headwater verify` and lists its files. Nodes may work meanwhile: every thread is read in a snapshot
//! of its own, and of the other tables each in one statement, so that no change is seen by half.

use super::archive::SegmentError;
use super::attachment_rows::{attachment_row, owner_and_path};
use super::client::{PostgresClient, Snapshot};
use super::connection::{
    Params, bytes_text_column, column, describe, limit_param, opt_u64_column, store_error, u64_column,
};
use super::records::{self, PageQuery, StoredPage};
use crate::verify::{FileRowProblem, StoredApproval, StoredFiles, StoredRun, ThreadAudit, VerifyReport};
use futures_util::TryStreamExt as _;
use model::ports::{PageLimit, StoreError, StoreResult};
use model::record::Record;
use model::seq::{Epoch, Seq};
use model::{TaskId, ThreadId, UserId};
use std::ops::Range;
use std::pin::pin;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

/// Number of threads that are listed at a time.
const THREADS_PER_PAGE: usize = 1_000;
/// The class of errors that report damage: `data_corrupted`, `index_corrupted`, `internal_error`.
const DAMAGE_CLASS: &str = "XX";

const SELECT_THREAD: &str = "
    SELECT t.id, t.owner, t.head, t.appends, t.log_bytes, t.epoch, c.seq,
        least((SELECT min(seq) FROM headwater.records WHERE thread = t.num),
              (SELECT min(first_seq) FROM headwater.segments WHERE thread = t.num)),
        greatest((SELECT max(seq) FROM headwater.records WHERE thread = t.num),
                 (SELECT max(last_seq) FROM headwater.segments WHERE thread = t.num)),
        EXISTS (SELECT 1 FROM headwater.checkpoint_runs WHERE thread = t.num),
        ARRAY (SELECT a.hash FROM headwater.attachment_links l
               JOIN headwater.attachments a ON a.owner = l.owner AND a.path = l.path
               WHERE l.owner = t.owner AND l.thread = t.id AND a.hash IS NOT NULL AND a.bytes IS NOT NULL)
    FROM headwater.threads t LEFT JOIN headwater.checkpoints c ON c.thread = t.num WHERE t.num = $1";

const SELECT_RUNS: &str =
    "SELECT id, status, first_seq, last_seq, ended_at IS NOT NULL FROM headwater.runs WHERE thread = $1";

/// The tables whose rows belong to a thread by its number.
const SELECT_THREAD_TABLES: &str = "
    SELECT c.relname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'headwater' AND c.relkind = 'r' AND a.attname = 'thread' AND a.atttypid = 'bigint'::regtype
    ORDER BY 1";

const SELECT_APPROVALS: &str = "
    SELECT a.key, a.action, a.answer, EXISTS
        (SELECT 1 FROM headwater.runs r WHERE r.owner = a.owner AND r.id = a.run AND r.thread = a.thread)
    FROM headwater.approvals a ORDER BY a.key";

/// Each finds the subjects of a problem.
const FILE_ROW_CHECKS: [(FileRowProblem, &str); 5] = [
    (
        FileRowProblem::WrongSum,
        "SELECT owner FROM (SELECT owner, sum(bytes) AS held, 0 AS said FROM headwater.attachments GROUP BY owner
                            UNION ALL SELECT owner, 0, bytes FROM headwater.attachment_sums) s
         GROUP BY owner HAVING coalesce(sum(held), 0) <> sum(said) ORDER BY owner",
    ),
    (
        FileRowProblem::DuplicateBlob,
        "SELECT min(path) FROM headwater.attachments WHERE hash IS NOT NULL
         GROUP BY owner, hash HAVING count(*) > 1 ORDER BY 1",
    ),
    (
        FileRowProblem::HalfReleased,
        "SELECT path FROM headwater.attachments
         WHERE bytes IS NULL AND hash IS NOT NULL OR released AND bytes IS NOT NULL ORDER BY path",
    ),
    (
        FileRowProblem::UnlinkedBlob,
        "SELECT path FROM headwater.attachments a WHERE hash IS NOT NULL AND NOT EXISTS
         (SELECT 1 FROM headwater.attachment_links l WHERE l.owner = a.owner AND l.path = a.path) ORDER BY path",
    ),
    (
        FileRowProblem::LinkWithoutFile,
        "SELECT thread FROM headwater.attachment_links l WHERE NOT EXISTS (SELECT 1 FROM headwater.attachments a
         WHERE a.owner = l.owner AND a.path = l.path AND a.bytes IS NOT NULL AND NOT a.released) ORDER BY thread",
    ),
];

const SELECT_COMMITTED: &str = "
    SELECT path, name, content_type, bytes, created_at, hash, owner FROM headwater.attachments
    WHERE bytes IS NOT NULL ORDER BY owner, path";
const SELECT_STALE: &str = "SELECT owner, path FROM headwater.attachments WHERE bytes IS NULL ORDER BY owner, path";
const COUNT_UNLINKED: &str = "
    SELECT count(*) FROM headwater.attachments a WHERE hash IS NOT NULL AND bytes IS NOT NULL AND NOT EXISTS
    (SELECT 1 FROM headwater.attachment_links l JOIN headwater.threads t ON t.id = l.thread AND t.owner = l.owner
     WHERE l.owner = a.owner AND l.path = a.path)";

/// Why reading stopped.
enum ReadError {
    Database(Error),
    Store(StoreError),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl PostgresClient {
    /// Checks all threads and rows.
    ///
    /// # Errors
    /// When the database cannot be read, for other reasons than damage.
    pub async fn verify(&self) -> StoreResult<VerifyReport> {
        let mut report = VerifyReport::default();
        match self.check_all(&mut report).await {
            Ok(()) => Ok(report),
            Err(ReadError::Database(error)) if is_damage(&error) => {
                report.add_problem(format!("the database cannot be read on: {}", describe(&error)));
                Ok(report)
            }
            Err(ReadError::Database(error)) => Err(store_error(&error)),
            Err(ReadError::Store(error)) => Err(error),
        }
    }

    async fn check_all(&self, report: &mut VerifyReport) -> Result<(), ReadError> {
        self.check_threads(report).await?;
        self.check_orphaned_rows(report).await?;
        self.check_rows_of_threads(report).await?;
        self.check_file_rows(report).await?;
        self.check_objects(report).await
    }

    async fn check_objects(&self, report: &mut VerifyReport) -> Result<(), ReadError> {
        let Some(segments) = &self.segments else { return Ok(()) };
        for name in segments.find_orphans(&self.pool).await? {
            report.add_problem(format!("the archive has an object that nobody refers to: {name}"));
        }
        Ok(())
    }

    async fn check_orphaned_rows(&self, report: &mut VerifyReport) -> Result<(), ReadError> {
        for row in self.pool.query(SELECT_THREAD_TABLES, &[]).await? {
            let table: &str = column(&row, 0)?;
            let sql = format!(
                "SELECT count(*) FROM headwater.\"{table}\" r
                 WHERE NOT EXISTS (SELECT 1 FROM headwater.threads t WHERE t.num = r.thread)"
            );
            self.for_each_row(&sql, |row| {
                report.check_orphaned_rows(table, u64_column(row, 0)?);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn check_rows_of_threads(&self, report: &mut VerifyReport) -> Result<(), ReadError> {
        self.for_each_row("SELECT id, command FROM headwater.inbox ORDER BY id", |row| {
            report.check_inbox_command(column(row, 0)?, column(row, 1)?);
            Ok(())
        })
        .await?;
        self.for_each_row(SELECT_APPROVALS, |row| {
            let (key, action, answer) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
            report.check_approval(&StoredApproval { key, action, answer, has_run: column(row, 3)? });
            Ok(())
        })
        .await?;
        self.for_each_row("SELECT kind, name, thread FROM headwater.aliases ORDER BY owner, kind, name", |row| {
            report.check_alias(column(row, 0)?, &bytes_text_column(row, 1)?, column(row, 2)?);
            Ok(())
        })
        .await
    }

    async fn check_file_rows(&self, report: &mut VerifyReport) -> Result<(), ReadError> {
        let sql = "SELECT path, hash FROM headwater.attachments WHERE hash IS NOT NULL ORDER BY path";
        self.for_each_row(sql, |row| {
            report.check_blob_hash(column(row, 0)?, column(row, 1)?);
            Ok(())
        })
        .await?;
        for (problem, sql) in FILE_ROW_CHECKS {
            self.for_each_row(sql, |row| {
                report.add_file_row_problem(problem, column(row, 0)?);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn check_threads(&self, report: &mut VerifyReport) -> Result<(), ReadError> {
        let sql = "SELECT num FROM headwater.threads WHERE num > $1 ORDER BY num LIMIT $2";
        let mut last = i64::MIN;
        loop {
            let params = [(&last as _, Type::INT8), (&limit_param(THREADS_PER_PAGE) as _, Type::INT8)];
            let threads = self.pool.query(sql, &params).await?;
            if threads.is_empty() {
                return Ok(());
            }
            for row in threads {
                last = column(&row, 0)?;
                let snapshot = Snapshot::begin(&self.pool).await?;
                self.check_thread(&snapshot, last, report).await?;
                snapshot.end().await;
            }
        }
    }

    /// Visits the rows of a query without parameters, with few of them in memory.
    async fn for_each_row(
        &self,
        sql: &str,
        visit: impl FnMut(&Row) -> StoreResult<()> + Send,
    ) -> Result<(), ReadError> {
        let snapshot = Snapshot::begin(&self.pool).await?;
        snapshot.for_each_row(sql, &[], visit).await?;
        snapshot.end().await;
        Ok(())
    }

    /// Lists the files.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn stored_files(&self) -> StoreResult<StoredFiles> {
        let snapshot = Snapshot::begin(&self.pool).await?;
        match read_stored_files(&snapshot).await {
            Ok(files) => {
                snapshot.end().await;
                Ok(files)
            }
            Err(ReadError::Database(error)) => Err(store_error(&error)),
            Err(ReadError::Store(error)) => Err(error),
        }
    }
}

async fn read_stored_files(snapshot: &Snapshot) -> Result<StoredFiles, ReadError> {
    let mut files = StoredFiles::default();
    let committed = |row: &Row| {
        files.committed.push((UserId::from(column::<&str>(row, 6)?), attachment_row(row)?));
        Ok(())
    };
    snapshot.for_each_row(SELECT_COMMITTED, &[], committed).await?;
    let stale = |row: &Row| {
        files.stale.push(owner_and_path(row)?);
        Ok(())
    };
    snapshot.for_each_row(SELECT_STALE, &[], stale).await?;
    let unlinked = |row: &Row| {
        files.unlinked = usize::try_from(u64_column(row, 0)?).unwrap_or(usize::MAX);
        Ok(())
    };
    snapshot.for_each_row(COUNT_UNLINKED, &[], unlinked).await?;
    Ok(files)
}

fn is_damage(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with(DAMAGE_CLASS))
}

/// A thread's row, with what its other rows say about the whole thread.
struct StoredThread {
    head: Seq,
    appends: i64,
    log_bytes: u64,
    epoch: Epoch,
    checkpoint: Option<Seq>,
    first_record: Option<Seq>,
    last_record: Option<Seq>,
    has_checkpoint_runs: bool,
}

impl StoredThread {
    fn decode(row: &Row) -> StoreResult<Self> {
        Ok(Self {
            head: Seq(u64_column(row, 2)?),
            appends: column(row, 3)?,
            log_bytes: u64_column(row, 4)?,
            epoch: Epoch(u64_column(row, 5)?),
            checkpoint: opt_u64_column(row, 6)?.map(Seq),
            first_record: opt_u64_column(row, 7)?.map(Seq),
            last_record: opt_u64_column(row, 8)?.map(Seq),
            has_checkpoint_runs: column(row, 9)?,
        })
    }

    /// Compares the row with the records, which were all checked before.
    fn check(&self, audit: &mut ThreadAudit<'_>) {
        let Self { head, log_bytes, .. } = self;
        let expected = (*head > Seq::ZERO).then_some(Seq(1));
        if self.first_record != expected || self.last_record.unwrap_or(Seq::ZERO) != *head {
            let (first, last) = (self.first_record.unwrap_or_default(), self.last_record.unwrap_or_default());
            audit.report_thread(&format!("its row says that it has {head} records, but they are {first} to {last}"));
        }
        if *log_bytes != audit.log_bytes() {
            let found = audit.log_bytes();
            audit
                .report_thread(&format!("its row says that its records have {log_bytes} bytes, but they have {found}"));
        }
        if self.appends < 1 && *head > Seq::ZERO {
            audit.report_thread("its row counts no appends, but it has records");
        }
        if self.epoch < audit.epoch() {
            audit.report_thread("its last record has a newer epoch than its row");
        }
        if let Some(seq) = self.checkpoint.filter(|seq| seq > head) {
            audit.report_thread(&format!("its checkpoint is of record {seq}, but it has {head} records"));
        }
        if self.has_checkpoint_runs && self.checkpoint.is_none() {
            audit.report_thread("it has runs of a checkpoint, but no checkpoint");
        }
    }
}

impl PostgresClient {
    async fn check_thread(&self, snapshot: &Snapshot, num: i64, report: &mut VerifyReport) -> Result<(), ReadError> {
        let params = [(&num as _, Type::INT8)];
        let rows = snapshot.query(SELECT_THREAD, &params).await?;
        // A thread that was deleted after it was listed is not part of the snapshot.
        let Some(row) = rows.first() else { return Ok(()) };
        let (thread, owner) = (ThreadId::from(column::<&str>(row, 0)?), UserId::from(column::<&str>(row, 1)?));
        let stored = StoredThread::decode(row)?;
        let blobs: Vec<String> = column(row, 10)?;
        let mut audit = ThreadAudit::new(&thread, Some(blobs.into_iter().collect()), report);
        while audit.last_seq() < stored.head {
            match self.read_page(snapshot, (&owner, &thread), audit.last_seq()..stored.head).await? {
                PageCheck::Records(records) => records.iter().for_each(|record| audit.check_record(record)),
                PageCheck::Damaged(problem) => {
                    report.add_problem(problem);
                    return Ok(());
                }
                PageCheck::Deleted => return Ok(()),
            }
        }
        audit.finish_records();
        stored.check(&mut audit);
        let check_run = |row: &Row| {
            let seq = |index: usize| opt_u64_column(row, index).map(|seq| seq.map(Seq));
            audit.check_run_row(&StoredRun {
                id: TaskId::from(column::<&str>(row, 0)?),
                status: column(row, 1)?,
                first: seq(2)?,
                last: seq(3)?,
                has_ended: column(row, 4)?,
            });
            Ok(())
        };
        snapshot.for_each_row(SELECT_RUNS, &params, check_run).await
    }

    async fn read_page(
        &self,
        snapshot: &Snapshot,
        (owner, thread): (&UserId, &ThreadId),
        range: Range<Seq>,
    ) -> Result<PageCheck, ReadError> {
        let (limit, first) = (PageLimit::WIDE, range.start.next());
        let query = PageQuery::new((owner, thread), &range, limit);
        let rows = snapshot.query(records::SELECT_PAGE, &query.params()).await?;
        let segment = match records::decode_page(&rows, thread, range.clone()) {
            Ok(StoredPage::Records(page)) => return Ok(PageCheck::Records(page.records)),
            Ok(StoredPage::Archived { segment, .. }) => segment,
            Err(error @ StoreError::Corrupt { .. }) => return Ok(PageCheck::Damaged(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let error = match self.log_reader().read_segment(thread, &segment, range, limit).await {
            Ok(records) => return Ok(PageCheck::Records(records)),
            Err(error) => error,
        };
        if error == SegmentError::Missing {
            // The object may be gone because the thread is, which the snapshot does not tell.
            let sql = "SELECT 1 FROM headwater.threads WHERE id = $1";
            if self.pool.query_opt(sql, &[(&thread.as_str(), Type::TEXT)]).await?.is_none() {
                return Ok(PageCheck::Deleted);
            }
        }
        let what = if error == SegmentError::Missing { "is missing" } else { "is damaged" };
        match error.into_store_error(thread, first) {
            error @ StoreError::Corrupt { .. } => {
                Ok(PageCheck::Damaged(format!("{error} (the object {} {what})", segment.object)))
            }
            error => Err(error.into()),
        }
    }
}

/// The next records of a thread.
enum PageCheck {
    Records(Vec<Record>),
    Damaged(String),
    /// The thread was deleted meanwhile.
    Deleted,
}

impl Snapshot {
    /// Visits the rows of a query, with few of them in memory.
    async fn for_each_row(
        &self,
        sql: &str,
        params: Params<'_>,
        mut visit: impl FnMut(&Row) -> StoreResult<()> + Send,
    ) -> Result<(), ReadError> {
        let mut rows = pin!(self.stream(sql, params).await?);
        while let Some(row) = rows.try_next().await? {
            visit(&row)?;
        }
        Ok(())
    }
}
