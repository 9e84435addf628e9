//! Reads runs and threads: the fold of what is durable.

use super::Engine;
use crate::load_thread::{LoadedThread, load_thread};
use crate::read_records::{for_each_condensed_record, log_head};
use model::definition::HistoryWindow;
use model::fold::RunFold;
use model::history::{HistoryEntry, PriorHistory, to_owned_entries};
use model::json::ExactObject;
use model::ports::{RunRow, StoreError};
use model::task::{TaskObject, TaskStatus};
use model::thread::ThreadFold;
use model::usage::Usage;
use model::{Seq, TaskId, ThreadId, UserId};
use std::ops::ControlFlow;
use std::sync::Arc;

const OMITTED_HISTORY_NOTE: &str = "[What was said before this is left out: it is too long to be taken along.]";

impl Engine {
    /// The row of the run that a task belongs to. Runs of other users do not exist.
    pub async fn run_of_task(&self, user: &UserId, task: &TaskId) -> Result<Option<RunRow>, StoreError> {
        match task.run_id() {
            Some(run) => self.ports().directory.run(user, &run).await,
            None => Ok(None),
        }
    }

    /// A task as it is now: the fold of its durable records.
    pub async fn task_object(&self, user: &UserId, task: &TaskId) -> Result<Option<TaskObject>, StoreError> {
        let Some(row) = self.run_of_task(user, task).await? else { return Ok(None) };
        let Some(first) = row.first_seq else { return Ok(queued_task_object(&row).filter(|_| row.id == *task)) };
        let last = row.last_seq.filter(|_| row.status.is_terminal());
        let fold = self.fold_run(user, &row.thread, first, last).await?;
        Ok(fold.into_task_object(task))
    }

    pub(crate) async fn fold_run(
        &self,
        user: &UserId,
        thread: &ThreadId,
        first: Seq,
        last: Option<Seq>,
    ) -> Result<RunFold, StoreError> {
        let mut fold = RunFold::default();
        let until = last.unwrap_or(Seq::MAX);
        for_each_condensed_record(&*self.ports().journal, user, thread, first.prev(), until, |record| {
            if fold.has_ended() {
                return ControlFlow::Break(());
            }
            let _counted = fold.apply(record);
            ControlFlow::Continue(())
        })
        .await?;
        Ok(fold)
    }

    /// The usage of all runs of a thread that have ended.
    pub async fn thread_usage(&self, user: &UserId, thread: &ThreadId, head: Seq) -> Result<Usage, StoreError> {
        Ok(load_thread(self.ports(), user, thread, head).await?.thread.usage)
    }

    /// The history up to the end of a run, for a thread that is forked there.
    pub async fn history_until(&self, user: &UserId, run: &RunRow) -> Result<PriorHistory, StoreError> {
        let thread = self.load_thread_fold(user, &run.thread).await?;
        Ok(PriorHistory {
            entries: to_owned_entries(&thread.history(Some(&run.id), HistoryWindow::default())),
            reference_count: thread.reference_count,
        })
    }

    /// The same in at most `bytes_max` bytes: the newest runs that fit, after a note that others are omitted. Of a run that
    /// does not fit alone, only the messages, if they do.
    pub async fn history_within(
        &self,
        user: &UserId,
        run: &RunRow,
        bytes_max: usize,
    ) -> Result<PriorHistory, StoreError> {
        let thread = self.load_thread_fold(user, &run.thread).await?;
        let newest = |turns| thread.history(Some(&run.id), HistoryWindow { turns, tokens: None });
        let fits =
            |entries: &Vec<Arc<HistoryEntry>>| serde_json::to_vec(entries).is_ok_and(|text| text.len() <= bytes_max);
        let all = newest(None);
        if fits(&all) {
            return Ok(PriorHistory { entries: to_owned_entries(&all), reference_count: thread.reference_count });
        }
        // Binary search: `few` runs fit, `many` do not.
        let (mut few, mut many) = (0, thread.run_chain(Some(&run.id)).len().max(1));
        while few + 1 < many {
            let between = few.midpoint(many);
            match fits(&newest(Some(between))) {
                true => few = between,
                false => many = between,
            }
        }
        let mut kept = newest(Some(few));
        if few == 0 {
            let is_message = |entry: &Arc<HistoryEntry>| {
                matches!(**entry, HistoryEntry::User { .. } | HistoryEntry::Assistant { .. })
            };
            kept = Some(newest(Some(1)).into_iter().filter(is_message).collect()).filter(fits).unwrap_or_default();
        }
        let note = HistoryEntry::Summary { text: OMITTED_HISTORY_NOTE.to_owned() };
        Ok(PriorHistory {
            entries: [vec![note], to_owned_entries(&kept)].concat(),
            reference_count: thread.reference_count,
        })
    }

    /// The runs that a thread's last run as of `head`, which may be in progress, continues, and that run, oldest first. Runs
    /// that wait in the queue have no place in it yet.
    pub async fn runs_of_chain(&self, user: &UserId, thread: &ThreadId, head: Seq) -> Result<Vec<TaskId>, StoreError> {
        let LoadedThread { thread, run, .. } = load_thread(self.ports(), user, thread, head).await?;
        let active = run.as_ref().and_then(RunFold::root);
        let previous = active.and_then(|root| root.spec.previous.as_ref());
        let past = thread.run_chain(previous).into_iter().map(|past| &past.run);
        Ok(past.chain(active.map(|root| &root.id)).cloned().collect())
    }

    async fn load_thread_fold(&self, user: &UserId, thread: &ThreadId) -> Result<Arc<ThreadFold>, StoreError> {
        let ports = self.ports();
        let head = log_head(&*ports.journal, user, thread).await?;
        Ok(load_thread(ports, user, thread, head).await?.thread)
    }
}

/// A run that has not started has no records, only its row.
fn queued_task_object(row: &RunRow) -> Option<TaskObject> {
    Some(TaskObject {
        task_id: row.id.clone(),
        thread_id: row.thread.clone(),
        agent: row.agent.clone(),
        status: row.status,
        output: Vec::new(),
        pending: Vec::new(),
        usage: Usage::default(),
        error: None,
        reason: (row.status == TaskStatus::Cancelled).then(|| "user".to_owned()),
        metadata: ExactObject::new(),
        created_at: row.created_at,
        ended_at: row.ended_at,
        seq: Seq::ZERO,
    })
}
