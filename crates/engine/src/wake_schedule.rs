//! Threads that wait for people, and when each has to be looked at again. One sleeper for all of them.

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
    by_thread: HashMap<ThreadId, (Millis, UserId)>,
}

impl WakeSchedule {
    /// The thread is to be looked at then; an earlier word is forgotten.
    pub(crate) fn schedule(&self, owner: &UserId, thread: &ThreadId, at: Millis) {
        let mut waiting = lock(&self.scheduled);
        if let Some((before, _)) = waiting.by_thread.insert(thread.clone(), (at, owner.clone())) {
            waiting.by_time.remove(&(before, thread.clone()));
        }
        waiting.by_time.insert((at, thread.clone()));
        drop(waiting);
        self.changed.notify_one();
    }

    /// Those that are due, and when the next one is.
    pub(crate) fn take_due(&self, now: Millis) -> (Vec<(UserId, ThreadId)>, Option<Millis>) {
        let mut waiting = lock(&self.scheduled);
        let mut due = Vec::new();
        while let Some((at, thread)) = waiting.by_time.first().cloned() {
            if at > now {
                return (due, Some(at));
            }
            waiting.by_time.pop_first();
            if let Some((_, owner)) = waiting.by_thread.remove(&thread) {
                due.push((owner, thread));
            }
        }
        (due, None)
    }

    /// There is something to look at other than the time.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Something earlier may have come.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
