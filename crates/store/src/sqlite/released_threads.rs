//! Threads that their executors have given back. The next start claims its thread together with its submission, so an idle
//! thread costs no further visit to the writer.
//!
//! Shared with the writer instead of sent to it: an executor that has nothing left to do need not wake it.

use super::lock;
use model::ThreadId;
use model::ports::Lease;
use model::seq::Epoch;
use std::collections::HashMap;
use std::sync::Mutex;

/// Beyond this number all are forgotten; they are claimed like threads that were never executed.
const RELEASED_THREADS_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub(crate) struct ReleasedThreads(Mutex<HashMap<ThreadId, Epoch>>);

impl ReleasedThreads {
    pub(crate) fn put(&self, thread: &ThreadId, lease: Lease) {
        let mut released = lock(&self.0);
        if released.len() >= RELEASED_THREADS_MAX {
            released.clear();
        }
        released.insert(thread.clone(), lease.epoch);
    }

    /// Takes a thread out, with the epoch in which it was released. It may have been claimed since.
    pub(crate) fn take(&self, thread: &ThreadId) -> Option<Epoch> {
        lock(&self.0).remove(thread)
    }
}
