//! What a database has in `records`: read once, when it is opened.
//!
//! One pass over the rows in their order rebuilds [`super::index`]. Rows that do not follow each other are damage: the
//! thread ends before them, the others are not touched by it.

use super::blocks::{Block, Ended};
use super::dead::Dead;
use super::index::{self, Extent};
use super::page::known_to;
use model::seq::Seq;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The threads that have rows.
    pub(crate) entries: HashMap<ThreadId, index::Entry>,
    /// Runs that ended and whose rows have not moved yet.
    pub(crate) ended: VecDeque<Ended>,
    /// Rows whose records are in blocks.
    pub(crate) dead: Dead,
    /// The row after the last one.
    pub(crate) next_pos: i64,
    /// Rows that fit nowhere, the first of every thread.
    pub(crate) strays: Vec<Stray>,
}

/// A row that fits nowhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stray {
    /// The row.
    pub(crate) pos: i64,
    /// The number of the thread that it says it is of.
    pub(crate) thread: i64,
    /// The place that it says it has.
    pub(crate) seq: u64,
}

struct Rows {
    /// The last record that is in a block.
    settled: Seq,
    extents: VecDeque<Extent>,
    damaged: bool,
}

/// What a row is.
enum Row {
    Live,
    Dead,
    Stray,
}

impl Rows {
    /// Takes in the next row. After a stray one nothing is live.
    fn push(&mut self, seq: u64, pos: i64) -> Row {
        if self.extents.is_empty() && seq <= self.settled.0 {
            return Row::Dead;
        }
        let next = self.extents.back().map_or(self.settled.next().0, |last| last.end());
        if self.damaged || seq != next {
            self.damaged = true;
            return Row::Stray;
        }
        match self.extents.back_mut() {
            Some(last) if last.end_pos() == pos => last.count += 1,
            Some(_) | None => self.extents.push_back(Extent { seq, pos, count: 1 }),
        }
        Row::Live
    }
}

/// Reads the rows' places.
pub(crate) fn scan(conn: &Connection) -> rusqlite::Result<Scan> {
    let mut scan = Scan { next_pos: 1, ..Scan::default() };
    let mut threads: HashMap<i64, Rows> = HashMap::new();
    let mut select = conn.prepare("SELECT pos, thread, seq, length(public) FROM records ORDER BY pos")?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        let (pos, thread, seq) = (row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned());
        scan.next_pos = pos + 1;
        let known = match threads.entry(thread) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let settled = Block::head(conn, thread)?;
                new.insert(Rows { settled, extents: VecDeque::new(), damaged: false })
            }
        };
        let was_damaged = known.damaged;
        match known.push(seq, pos) {
            Row::Live => {}
            Row::Dead => {
                scan.dead.add(thread, Extent { seq, pos, count: 1 });
                scan.dead.weigh(row.get::<_, i64>(3)?.cast_unsigned());
            }
            Row::Stray if was_damaged => {}
            Row::Stray => scan.strays.push(Stray { pos, thread, seq }),
        }
    }
    for (num, rows) in threads {
        scan.settle(conn, num, rows)?;
    }
    Ok(scan)
}

impl Scan {
    fn settle(&mut self, conn: &Connection, num: i64, rows: Rows) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached("SELECT id, owner FROM threads WHERE num = ?1")?;
        let named = select.query_row([num], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
        let Some((id, owner)) = named.optional()? else {
            let first = rows.extents.front().map_or((0, 0), |first| (first.pos, first.seq));
            self.strays.push(Stray { pos: first.0, thread: num, seq: first.1 });
            return Ok(());
        };
        let thread = ThreadId::from(id);
        let head = rows.extents.back().map_or(rows.settled, |last| Seq(last.end().saturating_sub(1)));
        let damaged = rows.damaged || known_to(conn, num)? > head;
        if rows.extents.is_empty() && !damaged {
            return Ok(());
        }
        let first = rows.extents.front().map_or(u64::MAX, |first| first.seq);
        if let Some(last) = ended(conn, num)?.filter(|last| last.0 >= first && !damaged) {
            self.ended.push_back(Ended { thread: thread.clone(), num, last });
        }
        let owner = UserId::from(owner);
        let damaged = damaged.then(|| head.next());
        self.entries.insert(thread, index::Entry { num, owner, head, extents: rows.extents, damaged });
        Ok(())
    }
}

/// The last record of the last run that has ended.
fn ended(conn: &Connection, num: i64) -> rusqlite::Result<Option<Seq>> {
    let sql = "SELECT last FROM runs WHERE thread = ?1 AND last IS NOT NULL AND ended_at IS NOT NULL
               ORDER BY last DESC LIMIT 1";
    let last = conn.prepare_cached(sql)?.query_row([num], |row| row.get::<_, i64>(0)).optional()?;
    Ok(last.map(|last| Seq(last.cast_unsigned())))
}
