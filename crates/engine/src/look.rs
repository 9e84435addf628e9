//! What there is to see of runs and threads: what is durable, folded.

use crate::engine::Engine;
use crate::open;
use model::block::Object;
use model::definition::HistoryWindow;
use model::fold::RunFold;
use model::history::Before;
use model::object::{TaskObject, TaskStatus};
use model::ports::{PageLimit, RunRow, StoreError};
use model::usage::Usage;
use model::{Seq, TaskId, ThreadId, UserId};

impl Engine {
    /// The row of the run that a task belongs to. Foreign ones do not exist.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn run_of(&self, user: &UserId, task: &TaskId) -> Result<Option<RunRow>, StoreError> {
        match task.run() {
            Some(run) => self.ports().directory.run(user, &run).await,
            None => Ok(None),
        }
    }

    /// A task as it is now: the fold of what is durable, and nothing else.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn object(&self, user: &UserId, task: &TaskId) -> Result<Option<TaskObject>, StoreError> {
        let Some(row) = self.run_of(user, task).await? else { return Ok(None) };
        let Some(first) = row.first else { return Ok(queued(&row).filter(|_| row.id == *task)) };
        let last = row.last.filter(|_| row.status.is_terminal());
        let fold = self.fold(user, &row.thread, first, last).await?;
        Ok(fold.object(task))
    }

    pub(crate) async fn fold(
        &self,
        user: &UserId,
        thread: &ThreadId,
        first: Seq,
        last: Option<Seq>,
    ) -> Result<RunFold, StoreError> {
        let mut fold = RunFold::default();
        let mut at = first.before();
        loop {
            let page = self.ports().journal.read(user, thread, at, PageLimit::WIDE).await?;
            let Some(end) = page.records.last() else { return Ok(fold) };
            at = end.seq;
            for record in &page.records {
                if fold.is_over() || last.is_some_and(|last| record.seq > last) {
                    return Ok(fold);
                }
                let _counted = fold.apply(record);
            }
        }
    }

    /// Folds a whole thread, with whatever checkpoint there is.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn thread_usage(&self, user: &UserId, thread: &ThreadId, head: Seq) -> Result<Usage, StoreError> {
        let ports = self.ports();
        let opened = open::fold(&*ports.journal, &*ports.directory, (user, thread), head).await?;
        Ok(opened.replay.thread.usage)
    }

    /// What was said and done up to the end of a run, for a thread that is to go on from there by itself.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn said_until(&self, user: &UserId, run: &RunRow) -> Result<Before, StoreError> {
        let (ports, thread) = (self.ports(), &run.thread);
        let head = ports.journal.read(user, thread, Seq(u64::MAX), PageLimit::ONE).await?.head;
        let past = open::fold(&*ports.journal, &*ports.directory, (user, thread), head).await?.replay.thread;
        Ok(Before { entries: past.history(Some(&run.id), HistoryWindow::default()), references: past.references })
    }
}

/// A run that has not begun has no records: its row is all there is.
fn queued(row: &RunRow) -> Option<TaskObject> {
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
        metadata: Object::new(),
        created_at: row.created_at,
        ended_at: row.ended_at,
        seq: Seq::ZERO,
    })
}
