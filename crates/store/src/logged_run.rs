//! A run as it was logged, for a reader beside the servers that use the store.
//!
//! One snapshot determines the range of records; every page is then read on its own, so that a slow reader holds nothing
//! open meanwhile.

use async_trait::async_trait;
use model::ports::{AttachmentRow, StoreError, StoreResult};
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use std::fmt;
use std::ops::Range;

/// A run, as logged when it was found.
#[derive(Debug)]
pub struct LoggedRun {
    pub id: TaskId,
    pub owner: UserId,
    pub thread: ThreadId,
    /// Whether the run had ended; otherwise later records are missing here.
    pub has_ended: bool,
    /// The first and the last record; `None` for a queued run.
    pub seq_range: Option<(Seq, Seq)>,
    pub(crate) log: Box<dyn SharedLog>,
}

/// Where the records and files of a run are read.
#[async_trait]
pub(crate) trait SharedLog: fmt::Debug + Send + Sync {
    /// Reads some records of the thread after the start of the range, up to its end.
    async fn read_page(&self, owner: &UserId, thread: &ThreadId, range: Range<Seq>) -> StoreResult<Vec<Record>>;

    /// The row of the owner's blob with this hash.
    async fn find_blob(&self, owner: &UserId, hash: &str) -> StoreResult<Option<AttachmentRow>>;
}

impl LoggedRun {
    /// The records in order, from the first.
    pub fn records(&self) -> LoggedRecords<'_> {
        let after = self.seq_range.map_or(Seq::ZERO, |(first, _)| first.prev());
        LoggedRecords { run: self, page: Vec::new().into_iter(), after, failed: false }
    }

    /// The row of the owner's blob with this hash.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find_blob(&self, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        self.log.find_blob(&self.owner, hash).await
    }

    async fn read_page(&self, after: Seq, last: Seq) -> StoreResult<Vec<Record>> {
        let mut records = self.log.read_page(&self.owner, &self.thread, after..last).await?;
        records.retain(|record| record.seq <= last && record.run == self.id);
        if records.is_empty() {
            return Err(StoreError::Corrupt { thread: self.thread.clone(), seq: after.next() });
        }
        Ok(records)
    }
}

/// The records of a run, one page in memory at a time.
#[derive(Debug)]
pub struct LoggedRecords<'a> {
    run: &'a LoggedRun,
    page: std::vec::IntoIter<Record>,
    after: Seq,
    failed: bool,
}

impl LoggedRecords<'_> {
    /// The next record. Nothing follows an error.
    pub async fn next(&mut self) -> Option<StoreResult<Record>> {
        let (_, last) = self.run.seq_range?;
        if self.page.len() == 0 && self.after < last && !self.failed {
            match self.run.read_page(self.after, last).await {
                Ok(records) => self.page = records.into_iter(),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        let record = self.page.next()?;
        self.after = record.seq;
        Some(Ok(record))
    }
}
