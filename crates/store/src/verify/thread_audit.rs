//! The checks of one thread, wherever its records are stored: the caller reads records and rows, and passes them on in order.

use super::{VerifyReport, blob_urls};
use model::event::Event;
use model::fold::RunFold;
use model::record::{RECORD_FORMAT_MAX, Record};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::{TaskId, ThreadId};
use std::collections::{HashMap, HashSet};

/// The row of a run.
#[derive(Debug)]
pub(crate) struct StoredRun {
    pub(crate) id: TaskId,
    pub(crate) status: String,
    pub(crate) first: Option<Seq>,
    pub(crate) last: Option<Seq>,
    pub(crate) has_ended: bool,
}

/// A run according to its records.
struct RunSummary {
    first: Seq,
    last: Seq,
    status: TaskStatus,
}

pub(crate) struct ThreadAudit<'a> {
    thread: &'a ThreadId,
    report: &'a mut VerifyReport,
    run: Option<RunFold>,
    /// The shared state after the last run: runs of older versions do not repeat it.
    state: Option<serde_json::Value>,
    epoch: Epoch,
    last: Seq,
    bytes: u64,
    /// Suppresses problems: only a newer version can check records of a newer format.
    has_newer_format: bool,
    logged_runs: HashMap<TaskId, RunSummary>,
    /// Hashes of the thread's blobs; `None` in a schema without blobs.
    linked_blobs: Option<HashSet<String>>,
}

impl<'a> ThreadAudit<'a> {
    /// Begins the next thread of the report.
    pub(crate) fn new(
        thread: &'a ThreadId,
        linked_blobs: Option<HashSet<String>>,
        report: &'a mut VerifyReport,
    ) -> Self {
        report.threads += 1;
        Self {
            thread,
            report,
            run: None,
            state: None,
            epoch: Epoch(0),
            last: Seq::ZERO,
            bytes: 0,
            has_newer_format: false,
            logged_runs: HashMap::new(),
            linked_blobs,
        }
    }

    /// The last record so far.
    pub(crate) const fn last_seq(&self) -> Seq {
        self.last
    }

    /// The epoch of the last record so far.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The size of the records so far.
    pub(crate) const fn log_bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn check_record(&mut self, record: &Record) {
        self.report.records += 1;
        self.last = record.seq;
        self.bytes = self.bytes.saturating_add(record.size_bytes() as u64);
        self.has_newer_format |= record.format > RECORD_FORMAT_MAX;
        if record.epoch < self.epoch {
            self.report_record(record.seq, "has an epoch that had ended before it");
        }
        self.epoch = self.epoch.max(record.epoch);
        if let Some(used) = &self.linked_blobs
            && blob_urls::blob_hashes_in_record(record).iter().any(|hash| !used.contains(hash))
        {
            self.report_record(record.seq, "names a blob that is not the thread's");
        }
        let event = record.event();
        let begins = matches!(event, Event::Created(created) if created.task.parent_task_id.is_none());
        if self.run.is_none() && !begins {
            if event.task_id().is_some() {
                self.report_record(record.seq, "is of a task, but no run goes on");
            }
            return;
        }
        let new_run = || RunFold { state: self.state.take(), ..RunFold::default() };
        let mut run = self.run.take().unwrap_or_else(new_run);
        if run.apply(record).is_err() {
            self.report_record(record.seq, "does not fit what is before it");
        }
        let status = run.root().map_or(TaskStatus::Queued, |root| root.status);
        if run.root().is_some_and(|root| root.id != record.run) {
            self.report_record(record.seq, "bears the name of another run");
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

    /// Call this after the last record.
    pub(crate) fn finish_records(&mut self) {
        if let Some(run) = self.run.take() {
            self.check_run_end(&run);
        }
    }

    /// Reports tasks that are still open after the end of their run.
    fn check_run_end(&mut self, run: &RunFold) {
        let unended = run.tasks.iter().filter(|task| run.has_ended() && !task.status.is_terminal());
        for task in unended {
            self.report_record(run.seq, &format!("ends its run, but task {} has not ended", task.id));
        }
    }

    /// Compares the row of a run with its records, which were all checked before.
    pub(crate) fn check_run_row(&mut self, row: &StoredRun) {
        self.report.runs += 1;
        let StoredRun { id, first, last, .. } = row;
        let Some(status) = TaskStatus::parse(&row.status) else {
            self.report.add_problem(format!("{}: run {id} has no state that there is: {}", self.thread, row.status));
            return;
        };
        let agrees = row.has_ended == status.is_terminal()
            && match self.logged_runs.get(id) {
                // Queued, or cancelled before it started.
                None => first.is_none() && matches!(status, TaskStatus::Queued | TaskStatus::Cancelled),
                Some(seen) if status.is_terminal() => {
                    seen.status == status && *first == Some(seen.first) && *last == Some(seen.last)
                }
                Some(seen) => {
                    let paused = status == TaskStatus::Paused;
                    let state = status != TaskStatus::Queued && paused == (seen.status == TaskStatus::Paused);
                    state && !seen.status.is_terminal() && *first == Some(seen.first) && *last <= Some(seen.last)
                }
            };
        if !agrees {
            self.report_thread(&format!("the row of run {id} does not say what its records say"));
        }
    }

    fn report_record(&mut self, seq: Seq, what: &str) {
        self.report_thread_as(format!("{}: record {seq} {what}", self.thread));
    }

    /// Reports rows that contradict the records.
    pub(crate) fn report_thread(&mut self, what: &str) {
        self.report_thread_as(format!("{}: {what}", self.thread));
    }

    fn report_thread_as(&mut self, problem: String) {
        if !self.has_newer_format {
            self.report.add_problem(problem);
        }
    }
}
