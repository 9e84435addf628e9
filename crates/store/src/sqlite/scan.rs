//! What a database has in `records`: read once, when it is opened.
//!
//! One pass over the rows in their order rebuilds [`super::index`]. Rows that do not follow each other are damage: the
//! thread ends before them, the others are not touched by it.

use super::blocks::{Block, Ended};
use super::index::{Entry, Extent};
use super::page::known_to;
use model::seq::Seq;
use model::{ThreadId, UserId};
use rusqlite::{Connection, OptionalExtension};
use std::collections::{HashMap, VecDeque};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The threads that have rows.
    pub(crate) entries: HashMap<ThreadId, Entry>,
    /// Runs that ended and whose rows have not moved yet.
    pub(crate) ended: VecDeque<Ended>,
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

#[derive(Default)]
struct Rows {
    extents: VecDeque<Extent>,
    damaged: bool,
}

impl Rows {
    /// Takes in the next row; false when it is the first that does not follow the one before it.
    fn push(&mut self, seq: u64, pos: i64) -> bool {
        match self.extents.back_mut() {
            _ if self.damaged => {}
            Some(last) if last.end() != seq => {
                self.damaged = true;
                return false;
            }
            Some(last) if last.end_pos() == pos => last.count += 1,
            Some(_) | None => self.extents.push_back(Extent { seq, pos, count: 1 }),
        }
        true
    }
}

/// Reads the rows' places.
pub(crate) fn scan(conn: &Connection) -> rusqlite::Result<Scan> {
    let mut scan = Scan { next_pos: 1, ..Scan::default() };
    let mut threads: HashMap<i64, Rows> = HashMap::new();
    let mut select = conn.prepare("SELECT pos, thread, seq FROM records ORDER BY pos")?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        let (pos, thread, seq) = (row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned());
        scan.next_pos = pos + 1;
        if !threads.entry(thread).or_default().push(seq, pos) {
            scan.strays.push(Stray { pos, thread, seq });
        }
    }
    for (num, rows) in threads {
        scan.settle(conn, num, rows)?;
    }
    Ok(scan)
}

impl Scan {
    fn settle(&mut self, conn: &Connection, num: i64, rows: Rows) -> rusqlite::Result<()> {
        let Some((first, last)) = rows.extents.front().copied().zip(rows.extents.back().copied()) else {
            return Ok(());
        };
        let mut select = conn.prepare_cached("SELECT id, owner FROM threads WHERE num = ?1")?;
        let named = select.query_row([num], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
        let Some((id, owner)) = named.optional()? else {
            self.strays.push(Stray { pos: first.pos, thread: num, seq: first.seq });
            return Ok(());
        };
        let thread = ThreadId::from(id);
        let settled = Block::head(conn, num)?;
        let mut entry =
            Entry { num, owner: UserId::from(owner), head: settled, extents: VecDeque::new(), damaged: None };
        if first.seq == settled.next().0 {
            entry.head = Seq(last.end() - 1);
            entry.extents = rows.extents;
        } else {
            self.strays.push(Stray { pos: first.pos, thread: num, seq: first.seq });
        }
        if rows.damaged || first.seq != settled.next().0 || known_to(conn, num)? > entry.head {
            entry.damaged = Some(entry.head.next());
        }
        if let Some(last) = ended(conn, num)?.filter(|last| last.0 >= first.seq && entry.damaged.is_none()) {
            self.ended.push_back(Ended { thread: thread.clone(), num, last });
        }
        self.entries.insert(thread, entry);
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
