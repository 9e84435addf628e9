//! The threads that this process is resuming.

use crate::sync::{Mutex, lock};
use model::ThreadId;
use model::error::{ErrorCode, ErrorInfo};
use model::ports::RESUMES_MAX;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The time for a thread to show progress before the next one is resumed.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// The threads that are being resumed and have not progressed yet, each with how often it was resumed alone.
#[derive(Default)]
pub(crate) struct RecoveryTracker {
    is_active: AtomicBool,
    waiting: Mutex<BTreeMap<ThreadId, u32>>,
    /// Threads that are not resumed any more: whatever is done with them crashes the process.
    parked: Mutex<HashSet<ThreadId>>,
    changed: Notify,
}

impl RecoveryTracker {
    /// The thread has logged something, or has nothing to do.
    pub(crate) fn mark_progress(&self, thread: &ThreadId) {
        if !self.is_active.load(Ordering::Acquire) || lock(&self.waiting).remove(thread).is_none() {
            return;
        }
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    pub(crate) fn add(&self, thread: &ThreadId, attempts: u32) {
        lock(&self.waiting).insert(thread.clone(), attempts);
        self.is_active.store(true, Ordering::Release);
    }

    /// The thread stays on the list, and is not woken by anything.
    pub(crate) fn park(&self, thread: &ThreadId) {
        lock(&self.parked).insert(thread.clone());
    }

    /// The threads that all nodes have parked, and not deleted since. Returns those that were not known to be parked.
    pub(crate) fn replace_parked(&self, parked: HashSet<ThreadId>) -> Vec<ThreadId> {
        if !parked.is_empty() {
            self.is_active.store(true, Ordering::Release);
        }
        let mut known = lock(&self.parked);
        let new = parked.difference(&known).cloned().collect();
        *known = parked;
        new
    }

    pub(crate) fn is_parked(&self, thread: &ThreadId) -> bool {
        self.is_active.load(Ordering::Acquire) && lock(&self.parked).contains(thread)
    }

    /// The thread was deleted. Returns whether it was parked.
    pub(crate) fn forget(&self, thread: &ThreadId) -> bool {
        let was_parked = self.is_active.load(Ordering::Acquire) && lock(&self.parked).remove(thread);
        if was_parked {
            lock(&self.waiting).remove(thread);
        }
        was_parked
    }

    /// The process stops in order: what it was resuming neither crashed nor stalled it. Threads that are parked stay so.
    pub(crate) fn clear_suspicion(&self) {
        lock(&self.waiting).retain(|_, resumes| *resumes >= RESUMES_MAX);
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<ThreadId, u32> {
        lock(&self.waiting).clone()
    }

    pub(crate) async fn wait_for_progress(&self, thread: &ThreadId) {
        let progressed = async {
            loop {
                let changed = self.changed.notified();
                if !lock(&self.waiting).contains_key(thread) {
                    return;
                }
                changed.await;
            }
        };
        // A slow thread is no suspect, but it stays on the list.
        let _in_time = tokio::time::timeout(PROGRESS_TIMEOUT, progressed).await.is_ok();
    }
}

/// The error of a run that is not resumed any more.
pub(crate) fn recovery_error() -> ErrorInfo {
    let message =
        format!("The server failed {RESUMES_MAX} times while it started or resumed this run. What was shown is kept.");
    ErrorInfo::new(ErrorCode::RecoveryFailed, message)
}
