//! Threads that wait for people, and when each has to be woken. One loop sleeps for all of them.

use crate::sync::{Mutex, lock};
use model::{Millis, ThreadId, UserId};
use std::collections::{BTreeSet, HashMap};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct WakeSchedule {
    scheduled: Mutex<ScheduledWakes>,
    changed: Notify,
}

#[derive(Default)]
struct ScheduledWakes {
    by_time: BTreeSet<(Millis, ThreadId)>,
    by_thread: HashMap<ThreadId, (Millis, DueThread)>,
}

/// A thread to be woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueThread {
    pub(crate) owner: UserId,
    pub(crate) thread: ThreadId,
    /// The time of the timer that is due, as the log has it. Later than now if the clock was set back.
    pub(crate) timer_at: Millis,
}

impl WakeSchedule {
    /// Sets the time at which a thread is woken; replaces an earlier one.
    pub(crate) fn schedule(&self, owner: &UserId, thread: &ThreadId, at: Millis) {
        self.schedule_at(DueThread { owner: owner.clone(), thread: thread.clone(), timer_at: at }, at);
    }

    /// The same, at another time than the timer's.
    pub(crate) fn schedule_at(&self, due: DueThread, at: Millis) {
        let mut scheduled = lock(&self.scheduled);
        let thread = due.thread.clone();
        if let Some((before, _)) = scheduled.by_thread.insert(thread.clone(), (at, due)) {
            scheduled.by_time.remove(&(before, thread.clone()));
        }
        scheduled.by_time.insert((at, thread));
        drop(scheduled);
        self.changed.notify_one();
    }

    /// Removes and returns the threads that are due, and the time of the next one.
    pub(crate) fn take_due(&self, now: Millis) -> (Vec<DueThread>, Option<Millis>) {
        let mut scheduled = lock(&self.scheduled);
        let mut due = Vec::new();
        while let Some((at, thread)) = scheduled.by_time.first().cloned() {
            if at > now {
                return (due, Some(at));
            }
            scheduled.by_time.pop_first();
            due.extend(scheduled.by_thread.remove(&thread).map(|(_, due)| due));
        }
        (due, None)
    }

    /// Wakes the loop for another reason than time.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
