//! Replies to committed groups, sent by a task of the runtime.
//!
//! The callbacks of appends publish and project records. On the writer thread they would delay the next commit, and each would
//! wake a sleeping core: tasks that one worker of the runtime wakes are its own next tasks. Replies keep the order of commits,
//! because one thread at a time sends them. When the task falls behind, or its runtime has ended, the writer sends them itself, so
//! the queue is bounded and never waits for a runtime that is blocked.

use super::lock;
use super::write_task::{WriteFailure, WriteTask};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Number of groups that wait for the task. The writer sends the replies of further ones itself.
const WAITING_GROUPS_MAX: usize = 32;

/// The tasks of a group, and whether it was committed.
struct FinishedGroup {
    tasks: Vec<Box<dyn WriteTask>>,
    committed: Result<(), WriteFailure>,
}

#[derive(Default)]
struct WaitingGroups {
    groups: VecDeque<FinishedGroup>,
    /// Whether the task waits for groups.
    has_task: bool,
}

#[derive(Default)]
struct ReplyState {
    waiting: Mutex<WaitingGroups>,
    /// Held while replies are sent.
    sending: Mutex<()>,
    pushed: Notify,
}

impl ReplyState {
    /// Sends the replies of the oldest group. False if there is none.
    fn send_next(&self) -> bool {
        let _in_order = lock(&self.sending);
        let Some(FinishedGroup { tasks, committed }) = lock(&self.waiting).groups.pop_front() else { return false };
        for task in tasks {
            // A panic in a callback must end neither the writer nor the task.
            if catch_unwind(AssertUnwindSafe(|| task.finish(committed.as_ref().copied()))).is_err() {
                tracing::error!("a callback of an append panicked");
            }
        }
        true
    }

    fn send_all(&self) {
        while self.send_next() {}
    }
}

/// The writer's end. Dropping it sends what is left.
pub(crate) struct ReplyQueue {
    state: Arc<ReplyState>,
    task: Option<AbortHandle>,
}

impl ReplyQueue {
    /// Starts the task on the current runtime. Without one the writer sends all replies.
    pub(crate) fn start() -> Self {
        let state = Arc::<ReplyState>::default();
        let task = Handle::try_current().ok().map(|runtime| {
            lock(&state.waiting).has_task = true;
            runtime.spawn(send_when_pushed(ReplyTask(Arc::clone(&state)))).abort_handle()
        });
        Self { state, task }
    }

    /// Adds a group. Its replies are sent after those of the groups before it.
    pub(crate) fn push(&self, tasks: Vec<Box<dyn WriteTask>>, committed: Result<(), WriteFailure>) {
        if tasks.is_empty() {
            return;
        }
        let mut waiting = lock(&self.state.waiting);
        waiting.groups.push_back(FinishedGroup { tasks, committed });
        let is_left_to_task = waiting.has_task && waiting.groups.len() <= WAITING_GROUPS_MAX;
        drop(waiting);
        if is_left_to_task {
            self.state.pushed.notify_one();
        } else {
            self.state.send_all();
        }
    }
}

impl Drop for ReplyQueue {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.state.send_all();
    }
}

/// The task's end. A runtime that ends drops it: then the writer sends the replies.
struct ReplyTask(Arc<ReplyState>);

impl Drop for ReplyTask {
    fn drop(&mut self) {
        lock(&self.0.waiting).has_task = false;
        self.0.send_all();
    }
}

async fn send_when_pushed(task: ReplyTask) {
    loop {
        task.0.pushed.notified().await;
        while task.0.send_next() {
            tokio::task::consume_budget().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::transaction::WriteTransaction;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// Sends its number, and whether it was committed.
    struct NumberedTask(usize, Sender<(usize, bool)>);

    impl WriteTask for NumberedTask {
        fn apply(&mut self, _: &mut WriteTransaction<'_>) -> rusqlite::Result<()> {
            Ok(())
        }

        fn finish(self: Box<Self>, committed: Result<(), &WriteFailure>) {
            assert_ne!(self.0, PANICS, "a callback that panics");
            self.1.send((self.0, committed.is_ok())).expect("the test receives");
        }
    }

    const PANICS: usize = 3;
    const GROUPS: usize = 10 * WAITING_GROUPS_MAX;

    /// Every second group was not committed.
    fn push_groups(queue: &ReplyQueue, numbers: std::ops::Range<usize>, sender: &Sender<(usize, bool)>) {
        for number in numbers {
            let committed = if number % 2 == 0 { Ok(()) } else { Err(WriteFailure::NoSpace) };
            queue.push(vec![Box::new(NumberedTask(number, sender.clone()))], committed);
        }
    }

    fn assert_in_order(replies: &Receiver<(usize, bool)>, numbers: std::ops::Range<usize>) {
        for number in numbers.filter(|number| *number != PANICS) {
            let reply = replies.recv_timeout(Duration::from_secs(10));
            assert_eq!(reply, Ok((number, number % 2 == 0)));
        }
        assert!(replies.try_recv().is_err(), "a reply was sent twice");
    }

    #[test]
    fn replies_are_sent_in_order_by_the_task_and_by_the_writer() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let (sender, replies) = channel();
        let queue = runtime.block_on(async { ReplyQueue::start() });
        push_groups(&queue, 0..GROUPS, &sender);
        assert_in_order(&replies, 0..GROUPS);
    }

    #[test]
    fn a_runtime_that_is_blocked_or_has_ended_delays_no_reply() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, replies) = channel();
        let queue = runtime.block_on(async { ReplyQueue::start() });
        // Nobody polls the task: some groups wait for it, and the next one is sent with them.
        push_groups(&queue, 0..WAITING_GROUPS_MAX, &sender);
        assert!(replies.try_recv().is_err());
        push_groups(&queue, WAITING_GROUPS_MAX..WAITING_GROUPS_MAX + 2, &sender);
        assert_in_order(&replies, 0..WAITING_GROUPS_MAX + 1);
        drop(runtime);
        push_groups(&queue, WAITING_GROUPS_MAX + 2..GROUPS, &sender);
        assert_in_order(&replies, WAITING_GROUPS_MAX + 1..GROUPS);
    }

    #[test]
    fn a_store_that_is_dropped_has_replied() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, replies) = channel();
        let queue = runtime.block_on(async { ReplyQueue::start() });
        push_groups(&queue, 0..2, &sender);
        drop(queue);
        assert_in_order(&replies, 0..2);
    }
}
