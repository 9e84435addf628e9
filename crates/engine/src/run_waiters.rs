//! Requests that wait until a run has ended or paused.
//!
//! A waiter is a flag on its run: it reads no log and is not woken by records. The append that settles a run wakes its
//! waiters when it is durable, and then each reads the run's row. Whatever else may have changed a run behind this process
//! (an append with an unknown outcome, a deleted thread, the end of the process) wakes the waiters of the whole thread.

use crate::sync::{Mutex, lock};
use foldhash::HashMap;
use model::ports::DirectoryChange;
use model::task::TaskStatus;
use model::{TaskId, ThreadId};
use std::sync::Arc;
use tokio::sync::Notify;

type RunFlags = HashMap<TaskId, Arc<Notify>>;

#[derive(Default)]
pub(crate) struct RunWaiters {
    threads: Mutex<HashMap<ThreadId, RunFlags>>,
}

/// One request that waits. Dropping it forgets the request.
pub(crate) struct RunWaiter {
    waiters: Arc<RunWaiters>,
    thread: ThreadId,
    run: TaskId,
    pub(crate) changed: Arc<Notify>,
}

impl RunWaiters {
    pub(crate) fn register(self: &Arc<Self>, thread: &ThreadId, run: &TaskId) -> RunWaiter {
        let mut threads = lock(&self.threads);
        let changed = Arc::clone(threads.entry(thread.clone()).or_default().entry(run.clone()).or_default());
        drop(threads);
        RunWaiter { waiters: Arc::clone(self), thread: thread.clone(), run: run.clone(), changed }
    }

    /// Wakes who waits for one of these runs.
    pub(crate) fn wake_runs(&self, thread: &ThreadId, runs: &[TaskId]) {
        if runs.is_empty() {
            return;
        }
        let threads = lock(&self.threads);
        let Some(flags) = threads.get(thread) else { return };
        runs.iter().filter_map(|run| flags.get(run)).for_each(|flag| flag.notify_waiters());
    }

    pub(crate) fn watched_threads(&self) -> Vec<ThreadId> {
        lock(&self.threads).keys().cloned().collect()
    }

    pub(crate) fn wake_thread(&self, thread: &ThreadId) {
        lock(&self.threads).get(thread).into_iter().flat_map(RunFlags::values).for_each(|flag| flag.notify_waiters());
    }

    pub(crate) fn wake_all(&self) {
        lock(&self.threads).values().flat_map(RunFlags::values).for_each(|flag| flag.notify_waiters());
    }
}

impl Drop for RunWaiter {
    fn drop(&mut self) {
        let mut threads = lock(&self.waiters.threads);
        let Some(flags) = threads.get_mut(&self.thread) else { return };
        // The map's and this one: it was the last waiter.
        if Arc::strong_count(&self.changed) <= 2 {
            flags.remove(&self.run);
        }
        if flags.is_empty() {
            threads.remove(&self.thread);
        }
    }
}

/// The runs that a batch ends, pauses or drops from the queue.
pub(crate) fn settled_runs(changes: &[DirectoryChange]) -> Vec<TaskId> {
    let settled = changes.iter().filter_map(|change| match change {
        DirectoryChange::RunStatus { run, status, .. } if status.is_terminal() || *status == TaskStatus::Paused => {
            Some(run.clone())
        }
        DirectoryChange::RunDropped { run, .. } => Some(run.clone()),
        _ => None,
    });
    settled.collect()
}

// The mutex of the model checker works in its own tests alone.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_who_left_is_remembered() {
        let waiters = Arc::new(RunWaiters::default());
        let (thread, runs) = (ThreadId::from("thr_1"), ["task_1", "task_2"].map(TaskId::from));
        let first = waiters.register(&thread, &runs[0]);
        let again = waiters.register(&thread, &runs[0]);
        let other = waiters.register(&thread, &runs[1]);
        drop(first);
        assert_eq!(lock(&waiters.threads)[&thread].len(), 2, "somebody else waits for the same run");
        drop(again);
        assert_eq!(lock(&waiters.threads)[&thread].len(), 1);
        drop(other);
        assert!(lock(&waiters.threads).is_empty());
    }
}
