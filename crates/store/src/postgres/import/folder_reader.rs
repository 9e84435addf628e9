//! Reads a folder that no server uses. Blocking.

use super::row_batch::RowBatch;
use super::{ImportError, tables};
use crate::sqlite::{
    BLOBS_SINCE, DataFolder, MIGRATIONS, PageForm, PageQuery, RecordIndex, StoreOpenError, open_offline, read_page,
    schema_version,
};
use crate::verify::{VerifyReport, check_structure};
use model::ports::{PageLimit, StoreError};
use model::record::Record;
use model::seq::{Epoch, Seq};
use model::{TaskId, ThreadId, UserId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// No release has written an older format.
const FORMAT_MIN: u32 = BLOBS_SINCE;
/// The lower half of an epoch counts claims, the upper half starts of a server.
const CLAIM_BITS: u32 = 32;

/// What is known of a folder before its rows are read.
#[derive(Clone, Debug)]
pub(crate) struct FolderSummary {
    pub(crate) threads: u64,
    /// Newer than every epoch that the folder's servers have granted.
    pub(crate) epoch: Epoch,
    /// Tables that number their rows, and the last number that each has given.
    pub(crate) last_numbers: Vec<(String, i64)>,
}

/// What is written in one statement.
pub(crate) enum ImportBatch {
    Rows(RowBatch),
    Records(Vec<ImportedRecord>),
}

pub(crate) struct ImportedRecord {
    /// The number of its thread.
    pub(crate) thread: i64,
    /// The number of its run.
    pub(crate) run: i64,
    pub(crate) record: Record,
}

/// A locked folder.
#[derive(Debug)]
pub(super) struct StoppedFolder {
    dir: PathBuf,
    folder: DataFolder,
    conn: Connection,
    version: u32,
    /// Where the records are that are not in blocks. Empty until the folder is checked.
    index: RecordIndex,
}

impl StoppedFolder {
    pub(super) fn open(dir: &Path) -> Result<Self, ImportError> {
        let folder = DataFolder::lock_existing(dir)?;
        let conn =
            open_offline(&folder.database).map_err(|error| StoreOpenError::from_sqlite(&folder.database, &error))?;
        let version = schema_version(&conn, MIGRATIONS)
            .map_err(|error| StoreOpenError::from_migration(&folder.database, &error))?;
        if version < FORMAT_MIN {
            return Err(ImportError::OldFormat { dir: dir.to_owned(), found: version });
        }
        Ok(Self { dir: dir.to_owned(), folder, conn, version, index: RecordIndex::default() })
    }

    /// Checks the folder for damage. That of records is found when they are read.
    pub(super) fn check(self) -> Result<(Self, FolderSummary), ImportError> {
        let mut report = VerifyReport::default();
        let scan = check_structure(&self.conn, &mut report).map_err(|error| self.sql_error(&error))?;
        if let Some(problem) = report.problems.pop() {
            return Err(ImportError::Damaged { dir: self.dir.clone(), problem });
        }
        self.index.replace(scan.threads);
        let summary = self.summarize().map_err(|error| self.sql_error(&error))?;
        Ok((self, summary))
    }

    fn summarize(&self) -> rusqlite::Result<FolderSummary> {
        let threads: i64 = self.conn.query_row("SELECT count(*) FROM threads", (), |row| row.get(0))?;
        let boots: Option<i64> =
            self.conn.query_row("SELECT value FROM meta WHERE name = 'boot'", (), |row| row.get(0)).optional()?;
        let next_boot = boots.unwrap_or_default().cast_unsigned().saturating_add(1);
        let epoch = Epoch(next_boot.saturating_mul(1 << CLAIM_BITS));
        let pair = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let sql = "SELECT name, seq FROM sqlite_sequence WHERE seq > 0 ORDER BY name";
        let last_numbers = self.conn.prepare(sql)?.query_map((), pair)?.collect::<rusqlite::Result<_>>()?;
        Ok(FolderSummary { threads: threads.unsigned_abs(), epoch, last_numbers })
    }

    /// Reads all rows. Returns early if nobody receives them any more.
    pub(super) fn read(self, epoch: Epoch, sender: &mpsc::Sender<ImportBatch>) -> Result<Self, ImportError> {
        match self.read_threads(epoch, sender).and_then(|()| self.read_plain_tables(sender)) {
            Ok(()) | Err(ReadError::NoReceiver) => Ok(self),
            Err(ReadError::Sql(error)) => Err(self.sql_error(&error)),
            Err(ReadError::Store(error)) => Err(error.into()),
        }
    }

    fn sql_error(&self, error: &rusqlite::Error) -> ImportError {
        StoreOpenError::from_sqlite(&self.folder.database, error).into()
    }

    fn read_plain_tables(&self, sender: &mpsc::Sender<ImportBatch>) -> Result<(), ReadError> {
        for table in tables::PLAIN_TABLES.iter().filter(|table| table.since <= self.version) {
            let mut select = self.conn.prepare(table.select)?;
            let mut rows = select.query(())?;
            let mut batch = RowBatch::new(table);
            while let Some(row) = rows.next()? {
                batch.push(row)?;
                if batch.is_full() {
                    send(sender, ImportBatch::Rows(std::mem::replace(&mut batch, RowBatch::new(table))))?;
                }
            }
            send(sender, ImportBatch::Rows(batch))?;
        }
        Ok(())
    }

    fn read_threads(&self, epoch: Epoch, sender: &mpsc::Sender<ImportBatch>) -> Result<(), ReadError> {
        let mut select = self.conn.prepare(tables::THREADS.select)?;
        let mut rows = select.query(())?;
        let mut batch = RowBatch::new(&tables::THREADS);
        let mut records = RecordBatch::default();
        while let Some(row) = rows.next()? {
            let log = self.read_log(row, &mut records, sender)?;
            let from_row: Vec<ValueRef<'_>> =
                (0..row.as_ref().column_count()).map(|column| row.get_ref(column)).collect::<rusqlite::Result<_>>()?;
            let from_records = [epoch.0, log.head.0, u64::from(log.head > Seq::ZERO), log.bytes]
                .map(|number| ValueRef::Integer(number.cast_signed()));
            batch.push_values(&[&from_row[..], &from_records].concat())?;
            if batch.is_full() {
                send(sender, ImportBatch::Rows(std::mem::replace(&mut batch, RowBatch::new(&tables::THREADS))))?;
            }
        }
        send(sender, ImportBatch::Records(records.records))?;
        send(sender, ImportBatch::Rows(batch))
    }

    /// Reads the records of a thread from rows and blocks.
    fn read_log(
        &self,
        row: &Row<'_>,
        batch: &mut RecordBatch,
        sender: &mpsc::Sender<ImportBatch>,
    ) -> Result<LogTotals, ReadError> {
        let num: i64 = row.get(0)?;
        let (thread, owner) = (ThreadId::from(row.get::<_, String>(1)?), UserId::from(row.get::<_, String>(2)?));
        let runs = self.run_numbers(num)?;
        let mut log = LogTotals::default();
        loop {
            let (limit, after) = (PageLimit::WIDE, log.head);
            let plan = self.index.read_plan(&thread, after, limit.records_max);
            let (owner, thread_id) = (owner.clone(), thread.clone());
            let query = PageQuery { owner, thread: thread_id, after, until: Seq::MAX, limit, plan };
            let page = read_page(&self.conn, &query, PageForm::Records)?;
            if page.records.is_empty() {
                return Ok(log);
            }
            for record in page.records {
                log.head = record.seq;
                log.bytes += record.size_bytes() as u64;
                let corrupt = StoreError::Corrupt { thread: thread.clone(), seq: record.seq };
                let run = *runs.get(&record.run).ok_or(corrupt)?;
                batch.push(ImportedRecord { thread: num, run, record });
                if batch.is_full() {
                    send(sender, ImportBatch::Records(std::mem::take(batch).records))?;
                }
            }
        }
    }

    /// The numbers of a thread's runs.
    fn run_numbers(&self, thread: i64) -> rusqlite::Result<HashMap<TaskId, i64>> {
        let mut select = self.conn.prepare_cached("SELECT id, num FROM runs WHERE thread = ?1")?;
        let pair = |row: &Row<'_>| Ok((TaskId::from(row.get::<_, String>(0)?), row.get(1)?));
        select.query_map([thread], pair)?.collect()
    }
}

#[derive(Default)]
struct LogTotals {
    head: Seq,
    bytes: u64,
}

/// Records of one or more threads.
#[derive(Default)]
struct RecordBatch {
    records: Vec<ImportedRecord>,
    bytes: usize,
}

impl RecordBatch {
    fn push(&mut self, imported: ImportedRecord) {
        self.bytes += imported.record.size_bytes();
        self.records.push(imported);
    }

    const fn is_full(&self) -> bool {
        self.records.len() >= RowBatch::ROWS_MAX || self.bytes >= RowBatch::BYTES_MAX
    }
}

enum ReadError {
    /// The import has failed elsewhere.
    NoReceiver,
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn send(sender: &mpsc::Sender<ImportBatch>, batch: ImportBatch) -> Result<(), ReadError> {
    sender.blocking_send(batch).map_err(|_| ReadError::NoReceiver)
}
