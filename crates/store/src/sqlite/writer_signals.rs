//! Wakes a writer that lets its next commit grow.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// What is on its way to the writer. An append of deltas has no caller that waits for it.
#[derive(Debug, Default)]
pub(crate) struct WriterSignals {
    /// Whether a task was sent.
    has_tasks: AtomicBool,
    /// Whether the caller of a task waits for it.
    has_urgent_tasks: AtomicBool,
    /// Whether the workers have sent everything that they had to send: see `runtime_ticks`.
    is_tick_over: AtomicBool,
    /// Whether the writer waits for its next group to grow. A writer that waits for a task is woken by the task.
    is_gathering: AtomicBool,
    writer: OnceLock<Thread>,
}

impl WriterSignals {
    /// Called before an urgent task is sent: a writer that is woken too soon waits for the task itself.
    pub(crate) fn notify_urgent(&self) {
        self.has_urgent_tasks.store(true, Ordering::SeqCst);
        self.wake_gathering();
    }

    /// Called after a task was sent that can wait.
    pub(crate) fn add_task(&self) {
        self.has_tasks.store(true, Ordering::SeqCst);
    }

    /// No worker has anything left to send.
    pub(crate) fn end_tick(&self) {
        if self.has_tasks.load(Ordering::SeqCst) {
            self.is_tick_over.store(true, Ordering::SeqCst);
            self.wake_gathering();
        }
    }

    fn wake_gathering(&self) {
        if self.is_gathering.load(Ordering::SeqCst)
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    pub(crate) fn has_urgent_tasks(&self) -> bool {
        self.has_urgent_tasks.load(Ordering::SeqCst)
    }

    pub(crate) fn is_tick_over(&self) -> bool {
        self.is_tick_over.load(Ordering::SeqCst)
    }

    /// Called before tasks are received: what is sent from now on signals again.
    pub(crate) fn clear(&self) {
        self.has_tasks.store(false, Ordering::SeqCst);
        self.has_urgent_tasks.store(false, Ordering::SeqCst);
        self.is_tick_over.store(false, Ordering::SeqCst);
    }

    /// Waits on the writer's thread until `delay`, which is asked again after each signal, is over.
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

    fn assert_never_lost(is_signalled: fn(&WriterSignals) -> bool, signal: fn(&WriterSignals)) {
        for _ in 0..1_000 {
            let signals = Arc::new(WriterSignals::default());
            let (gathered, ended) = channel();
            let writer = Arc::clone(&signals);
            let writer = std::thread::spawn(move || {
                writer.gather(|| if is_signalled(&writer) { Duration::ZERO } else { PATIENCE });
                gathered.send(()).unwrap();
            });
            signal(&signals);
            ended.recv_timeout(PATIENCE / 2).expect("the wake-up was not lost");
            writer.join().unwrap();
        }
    }

    #[test]
    fn a_writer_that_gathers_notices_an_urgent_task() {
        assert_never_lost(WriterSignals::has_urgent_tasks, WriterSignals::notify_urgent);
    }

    #[test]
    fn a_writer_that_gathers_notices_the_end_of_a_tick() {
        assert_never_lost(WriterSignals::is_tick_over, |signals| {
            signals.add_task();
            signals.end_tick();
        });
    }

    #[test]
    fn a_tick_without_tasks_wakes_nobody() {
        let signals = WriterSignals::default();
        signals.end_tick();
        assert!(!signals.is_tick_over());
        signals.add_task();
        signals.clear();
        signals.end_tick();
        assert!(!signals.is_tick_over());
    }
}
