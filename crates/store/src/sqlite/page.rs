//! Reading a page of a log.
//!
//! The plan (where the rows lie) is taken before the snapshot begins. So the snapshot has everything that the plan
//! promises: as a row, or, when its run ended in between, in a block. Every record is checked before it is given out;
//! what stands before a damaged one is given out first, and the damage is the answer to the next question.

use super::blocks::Block;
use super::index::Plan;
use super::rows::{self, fault};
use model::ports::{PageLimit, RecordPage, StoreError};
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};

/// What a page is asked for with.
pub(crate) struct Ask {
    /// By whom.
    pub(crate) owner: UserId,
    /// Of which thread.
    pub(crate) thread: ThreadId,
    /// After which record.
    pub(crate) after: Seq,
    /// How much.
    pub(crate) limit: PageLimit,
    /// Where the rows lie, if the thread has any.
    pub(crate) plan: Option<Plan>,
}

/// Reads it, in one snapshot.
pub(crate) fn read(conn: &Connection, ask: &Ask) -> Result<RecordPage, StoreError> {
    let snapshot = conn.unchecked_transaction().map_err(|error| rows::unavailable(&error))?;
    let mut reading = Reading::begin(&snapshot, ask)?;
    match reading.go_on() {
        Err(error) if reading.records.is_empty() => Err(error),
        Ok(()) | Err(_) => Ok(RecordPage { records: reading.records, head: reading.head }),
    }
}

struct Reading<'a> {
    conn: &'a Connection,
    ask: &'a Ask,
    num: i64,
    head: Seq,
    damaged: Option<Seq>,
    records: Vec<Record>,
    bytes: usize,
    /// The last run that was met: its number and its name.
    run: Option<(i64, TaskId)>,
}

impl<'a> Reading<'a> {
    fn begin(conn: &'a Connection, ask: &'a Ask) -> Result<Self, StoreError> {
        let fault = |error: rusqlite::Error| fault(&error, &ask.thread, ask.after.next());
        let (num, owner) = thread(conn, &ask.thread).map_err(fault)?.ok_or(StoreError::ThreadNotFound)?;
        if owner != ask.owner.as_str() {
            return Err(StoreError::ThreadNotFound);
        }
        // A name that was given again in between is another thread, and the plan was of the old one.
        let plan = ask.plan.as_ref().filter(|plan| plan.num == num);
        let (head, damaged) = match plan {
            Some(plan) => (plan.head, plan.damaged),
            None => settled_head(conn, num).map_err(fault)?,
        };
        Ok(Self { conn, ask, num, head, damaged, records: Vec::new(), bytes: 0, run: None })
    }

    fn go_on(&mut self) -> Result<(), StoreError> {
        while self.next() <= self.head && !self.is_full() {
            let next = self.next();
            self.rows(next).map_err(|error| self.fault(&error))?;
            if self.next() == next {
                self.block(next).map_err(|error| self.fault(&error))?;
            }
            if self.next() == next {
                return Err(self.corrupt());
            }
        }
        if self.damaged == Some(self.next()) { Err(self.corrupt()) } else { Ok(()) }
    }

    /// Reads what the plan says is in rows, as far as it is.
    fn rows(&mut self, next: Seq) -> rusqlite::Result<()> {
        let num = self.num;
        let extents = self.ask.plan.iter().filter(|plan| plan.num == num).flat_map(|plan| &plan.extents);
        for extent in extents.skip_while(|extent| extent.end() <= next.0) {
            // A block may have given the beginning of an extent already: its run ended after the plan was made.
            let extent = extent.from(self.next().0);
            if self.is_full() || extent.seq != self.next().0 {
                return Ok(());
            }
            let mut select = self.conn.prepare_cached(rows::SELECT)?;
            let mut found = select.query((extent.pos, extent.end_pos()))?;
            while let Some(row) = found.next()? {
                let row = rows::Row(row);
                let seq = self.next();
                if self.is_full() || !row.is_at(self.num, seq.0)? {
                    return Ok(());
                }
                let Some(run) = self.run(row.run()?)? else { return Ok(()) };
                if !self.take(row.record(seq, &run)?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads on in the block that has this record, if one has.
    fn block(&mut self, next: Seq) -> rusqlite::Result<()> {
        let Some(block) = Block::find(self.conn, self.num, next)? else { return Ok(()) };
        let Some(run) = self.run(block.run)? else { return Ok(()) };
        for record in block.unpack(next, &run).unwrap_or_default() {
            if self.is_full() || record.seq > self.head || !self.take(record) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a record into the page, if it is what was written.
    fn take(&mut self, record: Record) -> bool {
        let sound = record.seq == self.next() && record.has_valid_checksum(&self.ask.thread);
        if sound {
            self.bytes = self.bytes.saturating_add(record.size_bytes());
            self.records.push(record);
        }
        sound
    }

    fn run(&mut self, num: i64) -> rusqlite::Result<Option<TaskId>> {
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

    fn next(&self) -> Seq {
        self.records.last().map_or(self.ask.after, |record| record.seq).next()
    }

    /// A page has room for one record at least.
    fn is_full(&self) -> bool {
        let limit = self.ask.limit;
        !self.records.is_empty() && (self.records.len() >= limit.records_max || self.bytes >= limit.bytes_max)
    }

    fn corrupt(&self) -> StoreError {
        StoreError::Corrupt { thread: self.ask.thread.clone(), seq: self.next() }
    }

    fn fault(&self, error: &rusqlite::Error) -> StoreError {
        fault(error, &self.ask.thread, self.next())
    }
}

/// The number and the owner of a thread.
pub(crate) fn thread(conn: &Connection, thread: &ThreadId) -> rusqlite::Result<Option<(i64, String)>> {
    let mut select = conn.prepare_cached("SELECT num, owner FROM threads WHERE id = ?1")?;
    select.query_row([thread.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// The head of a thread that has no rows, only blocks, and the first place that is missing. The runs know how far the
/// blocks must go. To a reader that took its plan before a run began, the run's rows look missing as well: `Sqlite::read`
/// asks the writer, who knows.
pub(crate) fn settled_head(conn: &Connection, num: i64) -> rusqlite::Result<(Seq, Option<Seq>)> {
    let head = Block::head(conn, num)?;
    let missing = known_to(conn, num)? > head;
    Ok((head, missing.then(|| head.next())))
}

/// How far the thread's runs say that its log goes, at least.
pub(crate) fn known_to(conn: &Connection, num: i64) -> rusqlite::Result<Seq> {
    let mut select = conn.prepare_cached("SELECT max(last) FROM runs WHERE thread = ?1")?;
    let last: Option<i64> = select.query_row([num], |row| row.get(0))?;
    Ok(Seq(last.map_or(0, i64::cast_unsigned)))
}
