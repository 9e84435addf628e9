//! Reading a page of a log.
//!
//! The plan (the positions of the rows, and the records that only the append log has) is made before the snapshot. The snapshot
//! therefore has every other record of the plan: as a row, or in a block if its run ended in between. Every record is verified
//! before it is returned; the records before a damaged one are returned first, and the next read returns the error.

use super::condensed_blocks::CondensedBlock;
use super::record_blocks::RecordBlock;
use super::record_index::ReadPlan;
use super::record_row::{self, read_error};
use crate::block_coding::decode_record;
use bytes::Bytes;
use model::ports::{PageLimit, RecordPage, StoreError};
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};

pub(crate) struct PageQuery {
    pub(crate) owner: UserId,
    pub(crate) thread: ThreadId,
    pub(crate) after: Seq,
    /// The last record that is wanted.
    pub(crate) until: Seq,
    pub(crate) limit: PageLimit,
    /// `None` when the thread has no records outside blocks.
    pub(crate) plan: Option<ReadPlan>,
}

/// How the records of a page are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageForm {
    /// As they were written.
    Records,
    /// Condensed, where there is such a form.
    Condensed,
}

/// Reads a page in one snapshot.
pub(crate) fn read_page(conn: &Connection, query: &PageQuery, form: PageForm) -> Result<RecordPage, StoreError> {
    let snapshot = conn.unchecked_transaction().map_err(|error| record_row::unavailable_error(&error))?;
    let mut reading = PageReader::open(&snapshot, query)?;
    let filled = match form {
        PageForm::Records => reading.fill(query.until),
        PageForm::Condensed => reading.fill_condensed(),
    };
    match filled {
        Err(error) if reading.records.is_empty() => Err(error),
        Ok(()) | Err(_) => Ok(RecordPage { records: reading.records, head: reading.head }),
    }
}

struct PageReader<'a> {
    conn: &'a Connection,
    query: &'a PageQuery,
    num: i64,
    head: Seq,
    damaged_at: Option<Seq>,
    /// The last record to read from rows and blocks.
    until: Seq,
    records: Vec<Record>,
    bytes: usize,
    /// Number and id of the last run.
    run: Option<(i64, TaskId)>,
}

impl<'a> PageReader<'a> {
    fn open(conn: &'a Connection, query: &'a PageQuery) -> Result<Self, StoreError> {
        let fault = |error: rusqlite::Error| read_error(&error, &query.thread, query.after.next());
        let (num, owner) = find_thread(conn, &query.thread).map_err(fault)?.ok_or(StoreError::ThreadNotFound)?;
        if owner != query.owner.as_str() {
            return Err(StoreError::ThreadNotFound);
        }
        // A thread that was deleted and created again has a new number, which makes the plan stale.
        let plan = query.plan.as_ref().filter(|plan| plan.num == num);
        let (head, damaged) = match plan {
            Some(plan) => (plan.head, plan.damaged_at),
            None => head_from_blocks(conn, num).map_err(fault)?,
        };
        let until = query.until;
        Ok(Self { conn, query, num, head, damaged_at: damaged, until, records: Vec::new(), bytes: 0, run: None })
    }

    /// Reads the records up to `until`.
    fn fill(&mut self, until: Seq) -> Result<(), StoreError> {
        self.until = until;
        while self.next_seq() <= self.head.min(until) && !self.is_full() {
            let next = self.next_seq();
            self.read_rows(next).map_err(|error| self.read_error(&error))?;
            if self.next_seq() == next {
                self.read_block(next).map_err(|error| self.read_error(&error))?;
            }
            if self.next_seq() == next {
                self.read_logged(next).map_err(|error| self.read_error(&error))?;
            }
            if self.next_seq() == next {
                return Err(self.corrupt_error());
            }
        }
        let next = self.next_seq();
        if self.damaged_at == Some(next) && next <= until { Err(self.corrupt_error()) } else { Ok(()) }
    }

    /// Reads condensed records where there are any, and the records themselves everywhere else.
    fn fill_condensed(&mut self) -> Result<(), StoreError> {
        let until = self.query.until;
        while self.next_seq() <= until && !self.is_full() {
            let next = self.next_seq();
            let raw_until = match self.read_condensed_block(next) {
                Ok(raw_until) => raw_until,
                // The records have it all.
                Err(error) if record_row::is_corruption(&error) => until,
                Err(error) => return Err(self.read_error(&error)),
            };
            if self.next_seq() == next {
                self.fill(until.min(raw_until))?;
            }
            if self.next_seq() == next {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads from the condensed block that contains this record, unless the record is in the middle of a merged one. Returns
    /// up to where the records themselves have to be read if there was none to read.
    fn read_condensed_block(&mut self, next: Seq) -> rusqlite::Result<Seq> {
        let Some(block) = CondensedBlock::find(self.conn, self.num, next)? else {
            let condensed = CondensedBlock::next_condensed(self.conn, self.num, next)?;
            return Ok(condensed.map_or(Seq::MAX, Seq::prev));
        };
        let run = self.run_id(block.run)?;
        let records = run.and_then(|run| block.unpack(&self.query.thread, &run));
        if records.is_none() {
            tracing::error!(thread = %self.query.thread, seq = block.first, "a condensed block is damaged: not used");
        }
        let last = self.query.until.min(self.head);
        for record in records.unwrap_or_default().into_iter().skip_while(|record| record.seq < next) {
            if self.is_full() || record.seq > last || record.first_seq() != self.next_seq() {
                return Ok(record.seq);
            }
            self.push(record);
        }
        Ok(Seq(block.last))
    }

    /// Reads the rows of the plan.
    fn read_rows(&mut self, next: Seq) -> rusqlite::Result<()> {
        let num = self.num;
        let extents = self.query.plan.iter().filter(|plan| plan.num == num).flat_map(|plan| &plan.extents);
        for extent in extents.skip_while(|extent| extent.end_seq() <= next.0) {
            // The first records of an extent may have come from a block, if their run ended after the plan.
            let extent = extent.skip_to(self.next_seq().0);
            if self.is_full() || extent.seq != self.next_seq().0 {
                return Ok(());
            }
            let mut select = self.conn.prepare_cached(record_row::SELECT_RECORDS)?;
            let mut found = select.query([extent.pos])?;
            while self.next_seq().0 < extent.end_seq()
                && let Some(row) = found.next()?
            {
                let row = record_row::RecordRow(row);
                let next = self.next_seq();
                if self.is_full() || !row.contains(self.num, next.0)? {
                    return Ok(());
                }
                let Some(run) = self.run_id(row.run_num()?)? else { return Ok(()) };
                let encoded = Bytes::copy_from_slice(row.encoded_from(next.0)?);
                self.push_encoded(encoded, row.end_seq()?.min(extent.end_seq()), &run);
                if self.next_seq() == next {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads the records that were in the log when the plan was made.
    fn read_logged(&mut self, next: Seq) -> rusqlite::Result<()> {
        let query = self.query;
        let Some(plan) = query.plan.as_ref().filter(|plan| plan.num == self.num) else { return Ok(()) };
        let encoded = plan.logged.records.bytes_from(next.0);
        if let Some(run) = self.run_id(plan.logged.run)?.filter(|_| !encoded.is_empty()) {
            self.push_encoded(encoded.into(), plan.logged.end_seq(), &run);
        }
        Ok(())
    }

    /// Adds encoded records up to, and without, `end`. Stops at one that is damaged.
    fn push_encoded(&mut self, mut encoded: Bytes, end: u64, run: &TaskId) {
        while self.next_seq().0 < end && !self.is_full() {
            let record = decode_record(&mut encoded, self.next_seq(), run);
            if !record.is_some_and(|record| self.push_if_sound(record)) {
                return;
            }
        }
    }

    /// Reads from the block that contains this record, if any.
    fn read_block(&mut self, next: Seq) -> rusqlite::Result<()> {
        let Some(block) = RecordBlock::find(self.conn, self.num, next)? else { return Ok(()) };
        let Some(run) = self.run_id(block.run)? else { return Ok(()) };
        for record in block.unpack(next, &run).unwrap_or_default() {
            if self.is_full() || record.seq > self.head || !self.push_if_sound(record) {
                break;
            }
        }
        Ok(())
    }

    /// Adds a record to the page if it is wanted and intact.
    fn push_if_sound(&mut self, record: Record) -> bool {
        let is_next = record.seq == self.next_seq() && record.seq <= self.until;
        let sound = is_next && record.has_valid_checksum(&self.query.thread);
        if sound {
            self.push(record);
        }
        sound
    }

    fn push(&mut self, record: Record) {
        self.bytes = self.bytes.saturating_add(record.size_bytes());
        self.records.push(record);
    }

    fn run_id(&mut self, num: i64) -> rusqlite::Result<Option<TaskId>> {
        if let Some((known, id)) = &self.run
            && *known == num
        {
            return Ok(Some(id.clone()));
        }
        let mut select = self.conn.prepare_cached("SELECT id FROM runs WHERE num = ?1")?;
        let found = select.query_row([num], |row| row.get::<_, String>(0)).optional()?.map(TaskId::from);
        self.run = found.clone().map(|id| (num, id));
        Ok(found)
    }

    fn next_seq(&self) -> Seq {
        self.records.last().map_or(self.query.after, |record| record.seq).next()
    }

    /// An empty page is never full: a page has at least one record.
    fn is_full(&self) -> bool {
        let limit = self.query.limit;
        !self.records.is_empty() && (self.records.len() >= limit.records_max || self.bytes >= limit.bytes_max)
    }

    fn corrupt_error(&self) -> StoreError {
        StoreError::Corrupt { thread: self.query.thread.clone(), seq: self.next_seq() }
    }

    fn read_error(&self, error: &rusqlite::Error) -> StoreError {
        read_error(error, &self.query.thread, self.next_seq())
    }
}

/// The number of a thread, if it belongs to this owner.
pub(super) fn find_owned_thread(conn: &Connection, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<Option<i64>> {
    Ok(find_thread(conn, thread)?.filter(|(_, found_owner)| found_owner == owner.as_str()).map(|(num, _)| num))
}

/// The number and the owner of a thread.
pub(crate) fn find_thread(conn: &Connection, thread: &ThreadId) -> rusqlite::Result<Option<(i64, String)>> {
    let mut select = conn.prepare_cached("SELECT num, owner FROM threads WHERE id = ?1")?;
    select.query_row([thread.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// The head of a thread that has only blocks, and the first missing record according to its runs. The rows of a run
/// that started after the reader's plan look missing, too: `SqliteStore::load_page` then checks with the writer.
pub(crate) fn head_from_blocks(conn: &Connection, num: i64) -> rusqlite::Result<(Seq, Option<Seq>)> {
    let head = RecordBlock::last_packed_seq(conn, num)?;
    let missing = last_seq_of_runs(conn, num)? > head;
    Ok((head, missing.then(|| head.next())))
}

/// The last record according to the rows of the thread's runs; the log may be longer.
pub(crate) fn last_seq_of_runs(conn: &Connection, num: i64) -> rusqlite::Result<Seq> {
    let mut select = conn.prepare_cached("SELECT max(last) FROM runs WHERE thread = ?1")?;
    let last: Option<i64> = select.query_row([num], |row| row.get(0))?;
    Ok(Seq(last.map_or(0, i64::cast_unsigned)))
}
