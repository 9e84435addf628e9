//! Reads a data folder whose server is stopped. It runs SQLite's integrity check, then the checks of all rows. Old schemas
//! are not migrated.

use super::{StoredApproval, StoredRun, ThreadAudit, VerifyReport, attachments, condensed};
use crate::sqlite::{
    ALIASES_SINCE, APPROVALS_SINCE, ATTACHMENTS_SINCE, BLOBS_SINCE, CONDENSED_SINCE, DataFolder, MIGRATIONS, PageForm,
    PageQuery, RecordIndex, RecordScan, StoreOpenError, is_append_log_damaged, open_offline, read_page, scan_records,
    schema_version,
};
use model::ports::{PageLimit, StoreError};
use model::seq::Seq;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, Row};
use std::path::Path;

pub fn verify_data_folder(dir: &Path) -> Result<VerifyReport, StoreOpenError> {
    let folder = DataFolder::lock_existing(dir)?;
    let conn = open_offline(&folder.database).map_err(|error| StoreOpenError::from_sqlite(&folder.database, &error))?;
    let found =
        schema_version(&conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(&folder.database, &error))?;
    let mut report = VerifyReport::default();
    if found == 0 {
        return Ok(report);
    }
    if is_append_log_damaged(&folder.database) {
        report.add_problem("the append log is damaged: records that only it had may be missing");
    }
    if let Err(error) = check_database(&conn, found, &mut report) {
        report.add_problem(format!("the database cannot be read on: {error}"));
    }
    Ok(report)
}

fn check_database(conn: &Connection, version: u32, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let scan = check_structure(conn, report)?;
    check_threads(conn, scan, version, report)?;
    check_inbox_commands(conn, report)?;
    if version >= APPROVALS_SINCE {
        check_approvals(conn, report)?;
    }
    if version >= ALIASES_SINCE {
        check_aliases(conn, report)?;
    }
    if version >= ATTACHMENTS_SINCE {
        attachments::check_attachment_sums(conn, report)?;
    }
    if version >= BLOBS_SINCE {
        attachments::check_attachment_links(conn, report)?;
    }
    if version >= CONDENSED_SINCE { condensed::check_condensed_blocks(conn, report) } else { Ok(()) }
}

/// Checks what does not depend on the content of rows. Records are not read yet.
pub(crate) fn check_structure(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<RecordScan> {
    check_integrity(conn, report)?;
    let scan = scan_records(conn)?;
    for stray in &scan.stray_rows {
        report.add_problem(format!(
            "row {} of records, record {} of thread number {}, fits nowhere",
            stray.pos, stray.seq, stray.thread
        ));
    }
    check_orphaned_rows(conn, report)?;
    Ok(scan)
}

fn check_integrity(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    for_each_row(conn, "PRAGMA integrity_check", |row| {
        let line: String = row.get(0)?;
        if line != "ok" {
            report.add_problem(format!("SQLite: {line}"));
        }
        Ok(())
    })
}

pub(super) fn for_each_row(
    conn: &Connection,
    sql: &str,
    mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        visit(row)?;
    }
    Ok(())
}

fn check_threads(conn: &Connection, scan: RecordScan, version: u32, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let index = RecordIndex::default();
    index.replace(scan.threads);
    for_each_row(conn, "SELECT num, id, owner FROM threads ORDER BY num", |row| {
        let (num, id, owner): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (thread, owner) = (ThreadId::from(id), UserId::from(owner));
        let blobs =
            if version >= BLOBS_SINCE { Some(attachments::linked_blob_hashes(conn, &owner, &thread)?) } else { None };
        let mut audit = ThreadAudit::new(&thread, blobs, report);
        match check_records(conn, &index, (&owner, &thread), &mut audit) {
            Ok(()) => check_run_rows(conn, num, &mut audit),
            Err(error) => {
                report.add_problem(error.to_string());
                Ok(())
            }
        }
    })
}

fn check_records(
    conn: &Connection,
    index: &RecordIndex,
    (owner, thread): (&UserId, &ThreadId),
    audit: &mut ThreadAudit<'_>,
) -> Result<(), StoreError> {
    loop {
        let (limit, after) = (PageLimit::WIDE, audit.last_seq());
        let plan = index.read_plan(thread, after, limit.records_max);
        let (owner, thread) = (owner.clone(), thread.clone());
        let query = PageQuery { owner, thread, after, until: Seq::MAX, limit, plan };
        let page = read_page(conn, &query, PageForm::Records)?;
        if page.records.is_empty() {
            audit.finish_records();
            return Ok(());
        }
        page.records.iter().for_each(|record| audit.check_record(record));
    }
}

fn check_run_rows(conn: &Connection, num: i64, audit: &mut ThreadAudit<'_>) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached("SELECT id, status, first, last, ended_at FROM runs WHERE thread = ?1")?;
    let mut rows = select.query([num])?;
    while let Some(row) = rows.next()? {
        let seq = |at: usize| row.get::<_, Option<i64>>(at).map(|seq| seq.map(|seq| Seq(seq.cast_unsigned())));
        audit.check_run_row(&StoredRun {
            id: TaskId::from(row.get::<_, String>(0)?),
            status: row.get(1)?,
            first: seq(2)?,
            last: seq(3)?,
            has_ended: row.get::<_, Option<i64>>(4)?.is_some(),
        });
    }
    Ok(())
}

/// Reports rows of missing threads in every table but `records`, which the scan covers.
fn check_orphaned_rows(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let sql = "SELECT t.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
               WHERE t.type = 'table' AND t.name <> 'records' AND c.name = 'thread' AND c.type = 'INTEGER' ORDER BY 1";
    let tables: Vec<String> = conn.prepare(sql)?.query_map((), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for table in tables {
        let sql = format!("SELECT count(*) FROM \"{table}\" WHERE thread NOT IN (SELECT num FROM threads)");
        let count: u64 = conn.query_row(&sql, (), |row| row.get::<_, i64>(0))?.unsigned_abs();
        report.check_orphaned_rows(&table, count);
    }
    Ok(())
}

fn check_inbox_commands(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    for_each_row(conn, "SELECT id, command FROM inbox", |row| {
        report.check_inbox_command(row.get(0)?, row.get_ref(1)?.as_str()?);
        Ok(())
    })
}

fn check_approvals(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let sql = "SELECT a.key, a.action, a.answer, EXISTS
               (SELECT 1 FROM runs r WHERE r.owner = a.owner AND r.id = a.run AND r.thread = a.thread)
               FROM approvals a ORDER BY a.key";
    for_each_row(conn, sql, |row| {
        report.check_approval(&StoredApproval {
            key: row.get_ref(0)?.as_str()?,
            action: row.get_ref(1)?.as_str()?,
            answer: row.get_ref(2)?.as_str_or_null()?,
            has_run: row.get(3)?,
        });
        Ok(())
    })
}

fn check_aliases(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    for_each_row(conn, "SELECT protocol, name, thread FROM names ORDER BY owner, protocol, name", |row| {
        report.check_alias(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
        Ok(())
    })
}
