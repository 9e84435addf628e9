//! Wakes a writer that lets its next commit grow.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Whether a task is on its way whose caller waits for it. An append of deltas has no such caller.
#[derive(Debug, Default)]
pub(crate) struct UrgentTasks {
    is_notified: AtomicBool,
    /// Whether the writer waits for its next group to grow. A writer that waits for a task is woken by the task.
    is_gathering: AtomicBool,
    writer: OnceLock<Thread>,
}

impl UrgentTasks {
    /// Called before the task is sent: a writer that is woken too soon waits for the task itself.
    pub(crate) fn notify(&self) {
        self.is_notified.store(true, Ordering::SeqCst);
        if self.is_gathering.load(Ordering::SeqCst)
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.is_notified.load(Ordering::SeqCst)
    }

    /// Called before tasks are received: what is sent from now on notifies again.
    pub(crate) fn clear(&self) {
        self.is_notified.store(false, Ordering::SeqCst);
    }

    /// Waits on the writer's thread until `delay`, which is asked again after each notification, is over.
    pub(crate) fn gather(&self, delay: impl Fn() -> Duration) {
        // A store has one writer, so it is set once.
        let _ = self.writer.set(std::thread::current());
        self.is_gathering.store(true, Ordering::SeqCst);
        loop {
            let left = delay();
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        self.is_gathering.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    /// Longer than anything here takes, unless a wake-up is lost.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_writer_that_gathers_notices_an_urgent_task() {
        for _ in 0..1_000 {
            let urgent = Arc::new(UrgentTasks::default());
            let (gathered, ended) = channel();
            let writer = Arc::clone(&urgent);
            let writer = std::thread::spawn(move || {
                writer.gather(|| if writer.is_notified() { Duration::ZERO } else { PATIENCE });
                gathered.send(()).unwrap();
            });
            urgent.notify();
            ended.recv_timeout(PATIENCE / 2).expect("the wake-up was not lost");
            writer.join().unwrap();
        }
    }
}
