//! Finding runs, and reading their records.

use crate::context::Gateway;
use crate::rejection::Rejection;
use model::command::Command;
use model::error::ErrorCode;
use model::event::ClientIds;
use model::ports::{ListPage, PageLimit, RunFilter, RunRow, StoreError};
use model::{Record, Seq, TaskId, ThreadId, UserId};
use std::ops::ControlFlow;

/// Runs per page of a listing, and the newest runs of a thread among which a predecessor is looked for.
pub(crate) const RECENT_RUNS_MAX: usize = 100;
/// The rows of an inbox among which a run is looked for.
const QUEUED_RUNS_MAX: usize = 100;

/// The run of a task, and the position before its first record.
pub struct RunStart {
    pub run: RunRow,
    pub before: Seq,
}

impl RunStart {
    /// The run's id if it has not started: a run that is cancelled in the queue never writes a record.
    pub(crate) fn queued_run(&self) -> Option<TaskId> {
        self.run.first_seq.is_none().then(|| self.run.id.clone())
    }
}

pub async fn find_run_start(gateway: &Gateway, user: &UserId, task: &TaskId) -> Result<RunStart, Rejection> {
    let run = gateway.engine.run_of_task(user, task).await?.ok_or_else(Rejection::not_found)?;
    if let Some(first) = run.first_seq {
        return Ok(RunStart { run, before: first.prev() });
    }
    // First the head, then the row: a run that has not started by then starts after that head.
    let head = log_head(gateway, user, &run.thread).await?;
    let run = gateway.engine.run_of_task(user, task).await?.ok_or_else(Rejection::not_found)?;
    let before = run.first_seq.map_or(head, Seq::prev);
    Ok(RunStart { run, before })
}

/// The run that a task belongs to, if the task exists.
pub async fn find_run_of_task(gateway: &Gateway, user: &UserId, task: &TaskId) -> Result<RunRow, Rejection> {
    let run = gateway.engine.run_of_task(user, task).await?.ok_or_else(Rejection::not_found)?;
    // Any id of a run's form resolves to the run, even one that the run never assigned.
    if run.id != *task && gateway.engine.task_object(user, task).await?.is_none() {
        return Err(Rejection::not_found());
    }
    Ok(run)
}

/// Like [`find_run_of_task`], for operations that sub-agents do not have.
pub async fn find_root_run(gateway: &Gateway, user: &UserId, task: &TaskId) -> Result<RunRow, Rejection> {
    let run = find_run_of_task(gateway, user, task).await?;
    if run.id == *task {
        return Ok(run);
    }
    let detail = "this cannot be asked of a sub-agent: ask it of its run";
    Err(Rejection::new(ErrorCode::Unsupported, detail).with_extension("task_id", run.id.as_str()))
}

/// The newest runs of a thread, newest first.
pub(crate) async fn newest_runs(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    limit: usize,
) -> Result<Vec<RunRow>, StoreError> {
    let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
    gateway.engine.ports().directory.runs(user, filter, ListPage { before: None, limit }).await
}

/// The runs of a protocol's clients that wait in the thread's queue, with the clients' ids.
pub(crate) async fn queued_runs(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    protocol: &str,
) -> Result<Vec<(TaskId, ClientIds)>, StoreError> {
    let rows = gateway.engine.ports().directory.inbox_page(user, thread, 0, QUEUED_RUNS_MAX).await?;
    let queued = rows.into_iter().filter_map(|row| match row.command {
        Command::Start(start) => Some((start.task_id, start.client?)),
        Command::Cancel(_) | Command::Steer(_) | Command::Answer(_) => None,
    });
    Ok(queued.filter(|(_, client)| client.protocol == protocol).collect())
}

/// The seq of a thread's last record.
pub async fn log_head(gateway: &Gateway, user: &UserId, thread: &ThreadId) -> Result<Seq, StoreError> {
    engine::log_head(&*gateway.engine.ports().journal, user, thread).await
}

/// The run that a stream without a cursor starts with, by the position before it: the oldest that has not ended, even if it
/// is only queued, else the latest.
pub(crate) async fn default_start(gateway: &Gateway, user: &UserId, thread: &ThreadId) -> Result<Seq, StoreError> {
    // First the head, then the runs: one that has not started by then starts after that head.
    let head = log_head(gateway, user, thread).await?;
    let run = match gateway.engine.active_run(user, thread).await? {
        Some(active) => Some(active),
        None => {
            let journal = &gateway.engine.ports().journal;
            let page = journal.read_page(user, thread, head.prev(), PageLimit::ONE).await?;
            page.records.first().map(|record| record.run.clone())
        }
    };
    let Some(run) = run else { return Ok(head) };
    Ok(seq_before_run(gateway, user, &run).await?.unwrap_or(head))
}

/// The position before a run's first record, once it has started.
pub(crate) async fn seq_before_run(gateway: &Gateway, user: &UserId, run: &TaskId) -> Result<Option<Seq>, StoreError> {
    let row = gateway.engine.ports().directory.run(user, run).await?;
    Ok(row.and_then(|row| row.first_seq).map(Seq::prev))
}

/// Reads a thread's records after a position, in condensed form, until `visit` breaks or the log ends. Nothing here needs the
/// single deltas of a text.
pub async fn for_each_condensed_record<B>(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    after: Seq,
    visit: impl FnMut(&Record) -> ControlFlow<B>,
) -> Result<Option<B>, StoreError> {
    let journal = &*gateway.engine.ports().journal;
    engine::for_each_condensed_record(journal, user, thread, after, Seq::MAX, visit).await
}

/// Like [`for_each_condensed_record`], for the records of one run. A run that has not started has none.
pub(crate) async fn for_each_record_of_run<B>(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    mut visit: impl FnMut(&Record) -> ControlFlow<B>,
) -> Result<Option<B>, StoreError> {
    let Some(first) = run.first_seq else { return Ok(None) };
    let found = for_each_condensed_record(gateway, user, &run.thread, first.prev(), |record| {
        if record.run != run.id {
            return ControlFlow::Break(None);
        }
        visit(record).map_break(Some)
    });
    Ok(found.await?.flatten())
}
