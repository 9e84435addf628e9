//! Checks condensed blocks against the records that they stand for.

use super::VerifyReport;
use super::data_folder::for_each_row;
use crate::sqlite::{CondensedBlock, PageForm, PageQuery, read_page};
use model::condense::condense_records;
use model::ports::PageLimit;
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use rusqlite::Connection;

/// Reports condensed blocks that cannot be decoded or that stand for other records.
pub(super) fn check_condensed_blocks(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let sql = "SELECT c.thread, c.first_seq, c.last_seq, t.id, t.owner, ifnull(r.id, '') FROM condensed c
               JOIN threads t ON t.num = c.thread LEFT JOIN runs r ON r.num = c.run ORDER BY c.thread, c.first_seq";
    for_each_row(conn, sql, |row| {
        let seq = |at: usize| row.get::<_, i64>(at).map(|seq| Seq(seq.cast_unsigned()));
        let (num, first, last): (i64, Seq, Seq) = (row.get(0)?, seq(1)?, seq(2)?);
        let thread = ThreadId::from(row.get::<_, String>(3)?);
        let (owner, run) = (UserId::from(row.get::<_, String>(4)?), TaskId::from(row.get::<_, String>(5)?));
        let block = CondensedBlock::find(conn, num, first)?;
        let condensed = block.and_then(|block| block.unpack(&thread, &run));
        // Damage of the records is reported elsewhere.
        let agrees = condensed.is_some_and(|condensed| {
            let limit = PageLimit { records_max: usize::MAX, bytes_max: usize::MAX };
            let query =
                PageQuery { owner, thread: thread.clone(), after: first.prev(), until: last, limit, plan: None };
            read_page(conn, &query, PageForm::Records).map_or(true, |page| stands_for(&condensed, page.records))
        });
        if !agrees {
            report.add_problem(format!("{thread}: the condensed block of records {first} to {last} is damaged"));
        }
        Ok(())
    })
}

/// Whether condensed records stand for exactly these.
fn stands_for(condensed: &[Record], records: Vec<Record>) -> bool {
    let mut rest = records.into_iter();
    let is_sound = |record: &Record| {
        let merged = rest.by_ref().take(usize::try_from(record.record_count()).unwrap_or(usize::MAX)).collect();
        condense_records(merged) == [record.clone()]
    };
    condensed.iter().all(is_sound) && rest.next().is_none()
}
