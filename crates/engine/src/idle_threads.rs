//! Threads that were executed recently and have nothing to do. Their next turn starts without reading them again, so it
//! starts as fast as the first one.
//!
//! A cache: what is here is what folding the log would give. An entry is taken out by the thread's next executor, and holds
//! only if the log has not grown since.

use crate::load_thread::{CheckpointedRuns, LoadedThread};
use crate::sync::{Mutex, lock};
use model::thread::ThreadFold;
use model::{Seq, ThreadId, UserId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What all of them may take together. The ones that were used last stay.
const IDLE_THREADS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What an entry takes beside its runs.
const ENTRY_BYTES: usize = 1024;

/// The state of a thread between two runs. All of it is durable.
pub(crate) struct IdleThread {
    pub(crate) owner: UserId,
    pub(crate) thread: Arc<ThreadFold>,
    pub(crate) checkpointed: CheckpointedRuns,
}

impl From<IdleThread> for LoadedThread {
    fn from(idle: IdleThread) -> Self {
        let IdleThread { thread, checkpointed, .. } = idle;
        Self { thread, run: None, checkpointed, run_bytes: 0, has_newer_format: false }
    }
}

#[derive(Default)]
pub(crate) struct IdleThreads(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    threads: HashMap<ThreadId, Entry>,
    /// By the time of their insertion.
    order: BTreeMap<u64, ThreadId>,
    bytes: usize,
    next_tick: u64,
}

struct Entry {
    idle: IdleThread,
    bytes: usize,
    tick: u64,
}

impl IdleThreads {
    /// Takes a thread out. `None` unless its log ends where its state does.
    pub(crate) fn take(&self, owner: &UserId, thread: &ThreadId, head: Seq) -> Option<IdleThread> {
        let idle = lock(&self.0).remove(thread)?;
        (idle.owner == *owner && idle.thread.seq == head).then_some(idle)
    }

    /// The last record of a thread that is here.
    pub(crate) fn find_head(&self, owner: &UserId, thread: &ThreadId) -> Option<Seq> {
        let entries = lock(&self.0);
        entries.threads.get(thread).filter(|entry| entry.idle.owner == *owner).map(|entry| entry.idle.thread.seq)
    }

    pub(crate) fn put(&self, thread: &ThreadId, idle: IdleThread) {
        let bytes = ENTRY_BYTES + idle.checkpointed.memory_bytes() + idle.thread.history_cache.size_bytes();
        if bytes > IDLE_THREADS_BYTES_MAX {
            return;
        }
        let mut entries = lock(&self.0);
        entries.remove(thread);
        let tick = entries.next_tick;
        entries.next_tick += 1;
        entries.bytes += bytes;
        entries.order.insert(tick, thread.clone());
        entries.threads.insert(thread.clone(), Entry { idle, bytes, tick });
        while entries.bytes > IDLE_THREADS_BYTES_MAX
            && let Some((_, oldest)) = entries.order.pop_first()
        {
            entries.remove(&oldest);
        }
    }

    /// Drops a thread that was deleted. Returns whether it was here.
    pub(crate) fn forget(&self, thread: &ThreadId) -> bool {
        lock(&self.0).remove(thread).is_some()
    }
}

impl Entries {
    fn remove(&mut self, thread: &ThreadId) -> Option<IdleThread> {
        let Entry { idle, bytes, tick } = self.threads.remove(thread)?;
        self.order.remove(&tick);
        self.bytes -= bytes;
        Some(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::history::HistoryText;
    use model::thread::PastRun;
    use std::collections::HashSet;

    fn idle_thread(owner: &str, seq: u64, row_bytes: usize) -> IdleThread {
        let past = PastRun { run: "task_1".into(), previous: None, last_seq: Seq(seq), entries: Vec::new() };
        let mut checkpointed = CheckpointedRuns::default();
        checkpointed.push(&"x".repeat(row_bytes), &past);
        let thread = ThreadFold { seq: Seq(seq), runs: vec![Arc::new(past)], ..ThreadFold::default() };
        IdleThread { owner: UserId::from(owner), thread: Arc::new(thread), checkpointed }
    }

    #[test]
    fn a_thread_is_taken_once_by_its_owner_and_only_at_the_end_of_its_log() {
        let (threads, id, owner) = (IdleThreads::default(), ThreadId::from("thr_1"), UserId::from("ann"));
        for (taker, head, is_found) in [("ann", 7, true), ("ann", 8, false), ("ann", 6, false), ("bob", 7, false)] {
            threads.put(&id, idle_thread("ann", 7, 10));
            assert_eq!(threads.find_head(&UserId::from(taker), &id), (taker == "ann").then_some(Seq(7)));
            assert_eq!(threads.take(&UserId::from(taker), &id, Seq(head)).is_some(), is_found, "{taker} {head}");
            assert!(threads.take(&owner, &id, Seq(7)).is_none(), "it is gone either way");
        }
        threads.put(&id, idle_thread("ann", 7, 10));
        assert!(threads.forget(&id) && !threads.forget(&id));
        assert!(threads.take(&owner, &id, Seq(7)).is_none());
        assert_eq!(lock(&threads.0).bytes, 0);
    }

    #[test]
    fn the_bound_holds_and_the_oldest_goes_first() {
        let (threads, owner) = (IdleThreads::default(), UserId::from("ann"));
        let id = |n: usize| ThreadId::from(format!("thr_{n}"));
        let row_bytes = 1024 * 1024;
        for n in 0..100 {
            threads.put(&id(n), idle_thread("ann", 7, row_bytes));
            let entries = lock(&threads.0);
            assert!(entries.bytes <= IDLE_THREADS_BYTES_MAX && entries.order.len() == entries.threads.len());
        }
        let kept: Vec<usize> = (0..100).filter(|n| threads.take(&owner, &id(*n), Seq(7)).is_some()).collect();
        assert_eq!(kept, (85..100).collect::<Vec<_>>());
        let with_text = idle_thread("ann", 7, row_bytes);
        let mut text = HistoryText::new(String::new());
        text.append(&[], &vec![b'1'; row_bytes], HashSet::new());
        with_text.thread.history_cache.put_text(text);
        threads.put(&id(0), with_text);
        assert!(lock(&threads.0).bytes > 2 * row_bytes, "the text of its history counts");
        threads.forget(&id(0));
        threads.put(&id(0), idle_thread("ann", 7, IDLE_THREADS_BYTES_MAX));
        assert!(threads.take(&owner, &id(0), Seq(7)).is_none(), "one that is larger than the bound is not kept");
    }
}
