//! Read-only integrity check of a data folder whose server is stopped, for `headwater verify`.
//!
//! It runs SQLite's integrity check, then checks every thread: sequence numbers without a gap, checksums, epochs that
//! never decrease, records that the fold accepts, and table rows that agree with the log (law 9: a run has ended
//! exactly when its root's one terminal event is its last record). `attachments` checks files, `condensed` condensed
//! blocks. It does not migrate old schemas.

mod attachments;
mod condensed;

pub use attachments::{StoredFiles, list_stored_files};

use crate::sqlite::{
    ALIASES_SINCE, APPROVALS_SINCE, ATTACHMENTS_SINCE, BLOBS_SINCE, CONDENSED_SINCE, DataFolder, MIGRATIONS, PageForm,
    PageQuery, RecordIndex, RecordScan, StoreOpenError, open_offline, read_page, scan_records, schema_version,
};
use model::command::Command;
use model::event::{ActionRequest, Event};
use model::fold::RunFold;
use model::ports::{ApprovalAnswer, PageLimit};
use model::record::{RECORD_FORMAT, Record};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};
use rusqlite::{Connection, Row};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

/// Maximum number of problems in a report.
const PROBLEMS_MAX: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub threads: u64,
    pub runs: u64,
    pub records: u64,
    /// One line per problem.
    pub problems: Vec<String>,
}

impl VerifyReport {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a problem, unless the report is full.
    pub fn add_problem(&mut self, problem: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem.into().replace('\n', " "));
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} threads, {} runs, {} records", self.threads, self.runs, self.records)?;
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        match self.problems.len() {
            0 => write!(f, "no damage found"),
            PROBLEMS_MAX.. => write!(f, "more than {PROBLEMS_MAX} problems"),
            some => write!(f, "{some} problems"),
        }
    }
}

pub fn verify_data_folder(dir: &Path) -> Result<VerifyReport, StoreOpenError> {
    let folder = DataFolder::lock_existing(dir)?;
    let conn = open_offline(&folder.database).map_err(|error| StoreOpenError::from_sqlite(&folder.database, &error))?;
    let found =
        schema_version(&conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(&folder.database, &error))?;
    let mut report = VerifyReport::default();
    if found == 0 {
        return Ok(report);
    }
    let whole = check_integrity(&conn, &mut report).and_then(|()| {
        let scan = scan_records(&conn)?;
        check_threads(&conn, scan, found, &mut report)?;
        check_orphaned_rows(&conn, &mut report)?;
        check_inbox_commands(&conn, &mut report)?;
        if found >= APPROVALS_SINCE {
            check_approvals(&conn, &mut report)?;
        }
        if found >= ALIASES_SINCE {
            check_aliases(&conn, &mut report)?;
        }
        if found >= ATTACHMENTS_SINCE {
            attachments::check_attachment_sums(&conn, &mut report)?;
        }
        if found >= BLOBS_SINCE {
            attachments::check_attachment_links(&conn, &mut report)?;
        }
        if found >= CONDENSED_SINCE { condensed::check_condensed_blocks(&conn, &mut report) } else { Ok(()) }
    });
    if let Err(error) = whole {
        report.add_problem(format!("the database cannot be read on: {error}"));
    }
    Ok(report)
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

fn for_each_row(
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
    for stray in &scan.stray_rows {
        report.add_problem(format!(
            "row {} of records, record {} of thread number {}, fits nowhere",
            stray.pos, stray.seq, stray.thread
        ));
    }
    let index = RecordIndex::default();
    index.replace(scan.threads);
    for_each_row(conn, "SELECT num, id, owner FROM threads ORDER BY num", |row| {
        let (num, id, owner): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (thread, owner) = (ThreadId::from(id), UserId::from(owner));
        report.threads += 1;
        let blobs =
            if version >= BLOBS_SINCE { Some(attachments::linked_blob_hashes(conn, &owner, &thread)?) } else { None };
        let seen = HashMap::new();
        let mut audit = ThreadAudit {
            thread: &thread,
            report,
            run: None,
            state: None,
            epoch: Epoch(0),
            has_newer_format: false,
            logged_runs: seen,
            linked_blobs: blobs,
        };
        if audit.read_records(conn, &index, &owner) {
            audit.check_run_rows(conn, num)?;
        }
        Ok(())
    })
}

/// Reports rows of missing threads in every table but `records`, which the scan covers.
fn check_orphaned_rows(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let sql = "SELECT t.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
               WHERE t.type = 'table' AND t.name <> 'records' AND c.name = 'thread' AND c.type = 'INTEGER' ORDER BY 1";
    let tables: Vec<String> = conn.prepare(sql)?.query_map((), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for table in tables {
        let sql = format!("SELECT count(*) FROM \"{table}\" WHERE thread NOT IN (SELECT num FROM threads)");
        let count: u64 = conn.query_row(&sql, (), |row| row.get::<_, i64>(0))?.unsigned_abs();
        if count > 0 {
            report.add_problem(format!("{count} rows of {table} belong to no thread"));
        }
    }
    Ok(())
}

fn check_inbox_commands(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    for_each_row(conn, "SELECT id, command FROM inbox", |row| {
        let (id, command): (i64, String) = (row.get(0)?, row.get(1)?);
        if serde_json::from_str::<Command>(&command).is_err() {
            report.add_problem(format!("inbox row {id} is not a command"));
        }
        Ok(())
    })
}

/// Reports approvals that cannot be decoded or that belong to no run of their thread and owner.
fn check_approvals(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let sql = "SELECT a.key, a.action, a.answer, EXISTS
               (SELECT 1 FROM runs r WHERE r.owner = a.owner AND r.id = a.run AND r.thread = a.thread)
               FROM approvals a ORDER BY a.key";
    for_each_row(conn, sql, |row| {
        let (key, action, answer): (String, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if serde_json::from_str::<ActionRequest>(&action).is_err() {
            report.add_problem(format!("question {key} does not say what would be done"));
        }
        if answer.is_some_and(|answer| serde_json::from_str::<ApprovalAnswer>(&answer).is_err()) {
            report.add_problem(format!("question {key} has an answer that is none"));
        }
        if !row.get::<_, bool>(3)? {
            report.add_problem(format!("question {key} is asked by no run of its thread"));
        }
        Ok(())
    })
}

/// Reports aliases with an invalid thread id. A missing thread is no problem: an alias may exist before its thread.
fn check_aliases(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    for_each_row(conn, "SELECT protocol, name, thread FROM names ORDER BY owner, protocol, name", |row| {
        let (protocol, name, thread): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if ThreadId::parse(&thread).is_err() {
            report.add_problem(format!("the name {name} of {protocol} stands for no thread that there can be"));
        }
        Ok(())
    })
}

/// A run according to its records.
struct RunSummary {
    first: Seq,
    last: Seq,
    status: TaskStatus,
}

struct ThreadAudit<'a> {
    thread: &'a ThreadId,
    report: &'a mut VerifyReport,
    run: Option<RunFold>,
    /// The shared state after the last run: runs of older versions do not repeat it.
    state: Option<serde_json::Value>,
    epoch: Epoch,
    /// Suppresses problems: only a newer version can check records of a newer format.
    has_newer_format: bool,
    logged_runs: HashMap<TaskId, RunSummary>,
    /// Hashes of the thread's blobs; `None` in a schema without blobs.
    linked_blobs: Option<HashSet<String>>,
}

impl ThreadAudit<'_> {
    /// Checks all records. Returns false when they cannot be read.
    fn read_records(&mut self, conn: &Connection, index: &RecordIndex, owner: &UserId) -> bool {
        let mut after = Seq::ZERO;
        loop {
            let limit = PageLimit::WIDE;
            let plan = index.read_plan(self.thread, after, limit.records_max);
            let (owner, thread) = (owner.clone(), self.thread.clone());
            let query = PageQuery { owner, thread, after, until: Seq::MAX, limit, plan };
            let page = match read_page(conn, &query, PageForm::Records) {
                Ok(page) => page,
                Err(error) => {
                    self.report.add_problem(error.to_string());
                    return false;
                }
            };
            let Some(last) = page.records.last() else { break };
            after = last.seq;
            for record in &page.records {
                self.check_record(record);
            }
        }
        if let Some(run) = self.run.take() {
            self.check_run_end(&run);
        }
        true
    }

    fn check_record(&mut self, record: &Record) {
        self.report.records += 1;
        self.has_newer_format |= record.format > RECORD_FORMAT;
        if record.epoch < self.epoch {
            self.report_problem(record.seq, "has an epoch that had ended before it");
        }
        self.epoch = self.epoch.max(record.epoch);
        if let Some(used) = &self.linked_blobs
            && attachments::blob_hashes_in_record(record).iter().any(|hash| !used.contains(hash))
        {
            self.report_problem(record.seq, "names a blob that is not the thread's");
        }
        let event = record.event();
        let begins = matches!(event, Event::Created(created) if created.task.parent_task_id.is_none());
        if self.run.is_none() && !begins {
            if event.task_id().is_some() {
                self.report_problem(record.seq, "is of a task, but no run goes on");
            }
            return;
        }
        let new_run = || RunFold { state: self.state.take(), ..RunFold::default() };
        let mut run = self.run.take().unwrap_or_else(new_run);
        if run.apply(record).is_err() {
            self.report_problem(record.seq, "does not fit what is before it");
        }
        let status = run.root().map_or(TaskStatus::Queued, |root| root.status);
        if run.root().is_some_and(|root| root.id != record.run) {
            self.report_problem(record.seq, "bears the name of another run");
        }
        let seen = RunSummary { first: record.seq, last: record.seq, status };
        let seen = self.logged_runs.entry(record.run.clone()).or_insert(seen);
        (seen.last, seen.status) = (record.seq, status);
        if run.has_ended() {
            self.check_run_end(&run);
            self.state = run.state;
        } else {
            self.run = Some(run);
        }
    }

    /// Reports tasks that are still open after the end of their run.
    fn check_run_end(&mut self, run: &RunFold) {
        let unended = run.tasks.iter().filter(|task| run.has_ended() && !task.status.is_terminal());
        for task in unended {
            self.report_problem(run.seq, &format!("ends its run, but task {} has not ended", task.id));
        }
    }

    /// Compares the rows of the runs with their records.
    fn check_run_rows(&mut self, conn: &Connection, num: i64) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached("SELECT id, status, first, last, ended_at FROM runs WHERE thread = ?1")?;
        let mut rows = select.query([num])?;
        while let Some(row) = rows.next()? {
            let id = TaskId::from(row.get::<_, String>(0)?);
            let status: String = row.get(1)?;
            let seq = |at: usize| row.get::<_, Option<i64>>(at).map(|seq| seq.map(|seq| Seq(seq.cast_unsigned())));
            let (first, last) = (seq(2)?, seq(3)?);
            let ended = row.get::<_, Option<i64>>(4)?.is_some();
            self.report.runs += 1;
            let Some(status) = TaskStatus::parse(&status) else {
                self.report.add_problem(format!("{}: run {id} has no state that there is: {status}", self.thread));
                continue;
            };
            let agrees = ended == status.is_terminal()
                && match self.logged_runs.get(&id) {
                    // Queued, or cancelled before it started.
                    None => first.is_none() && matches!(status, TaskStatus::Queued | TaskStatus::Cancelled),
                    Some(seen) if status.is_terminal() => {
                        seen.status == status && first == Some(seen.first) && last == Some(seen.last)
                    }
                    Some(seen) => {
                        let paused = status == TaskStatus::Paused;
                        let state = status != TaskStatus::Queued && paused == (seen.status == TaskStatus::Paused);
                        state && !seen.status.is_terminal() && first == Some(seen.first) && last <= Some(seen.last)
                    }
                };
            if !agrees && !self.has_newer_format {
                self.report
                    .add_problem(format!("{}: the row of run {id} does not say what its records say", self.thread));
            }
        }
        Ok(())
    }

    fn report_problem(&mut self, seq: Seq, what: &str) {
        if !self.has_newer_format {
            self.report.add_problem(format!("{}: record {seq} {what}", self.thread));
        }
    }
}
