//! Something that is polled only after it was woken.
//!
//! A task with several futures polls all of them whenever one of them wakes it. What waits for something rare, such as the end
//! of the server or a message of a client who reads, would then cost every event of a stream a look at its state.

use futures_util::task::AtomicWaker;
use model::defects::Defect;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only after it was woken.
pub struct PollIfWoken<F> {
    future: F,
    gate: WakeGate,
}

impl<F> PollIfWoken<F> {
    pub fn new(future: F) -> Self {
        Self { future, gate: WakeGate::default() }
    }
}

impl<F: Future + Unpin> Future for PollIfWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, gate } = &mut *self;
        gate.poll(cx, |cx| Pin::new(future).poll(cx))
    }
}

/// For something that is polled again and again, always the same: polls it if it was woken since, or was ready.
pub struct WakeGate {
    wakeups: Arc<Wakeups>,
    /// Wakes the task through `wakeups`.
    waker: Waker,
    /// The task that `wakeups` wakes.
    task: Option<Waker>,
}

struct Wakeups {
    is_woken: AtomicBool,
    task: AtomicWaker,
}

impl Default for WakeGate {
    fn default() -> Self {
        let wakeups = Arc::new(Wakeups { is_woken: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { waker: Waker::from(Arc::clone(&wakeups)), wakeups, task: None }
    }
}

impl WakeGate {
    pub fn poll<T>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let is_same_task = self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if !self.wakeups.is_woken.swap(false, Ordering::SeqCst) && is_same_task {
            return Poll::Pending;
        }
        // A wake-up takes the registered waker, and one that comes from here on has to find it.
        self.wakeups.task.register(cx.waker());
        if !is_same_task {
            self.task = Some(cx.waker().clone());
        }
        let polled = poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            // What was ready has registered nobody.
            self.wakeups.is_woken.store(true, Ordering::SeqCst);
        }
        polled
    }
}

impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !Defect::WakeUpLost.is_planted() {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;
    use tokio::sync::watch;
    use tokio::time::timeout;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn it_is_polled_once_for_each_wake_up_and_wakes_the_task_that_polled_last() {
        let (polls, inner) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicWaker::new()));
        let (counted, registered) = (Arc::clone(&polls), Arc::clone(&inner));
        let mut future = PollIfWoken::new(poll_fn(move |cx| {
            registered.register(cx.waker());
            if counted.fetch_add(1, Ordering::SeqCst) < 3 { Poll::Pending } else { Poll::Ready(()) }
        }));
        let tasks = [(); 2].map(|()| Arc::new(CountingWaker::default()));
        let woken = || [tasks[0].0.load(Ordering::SeqCst), tasks[1].0.load(Ordering::SeqCst)];
        let mut poll = |task: usize| {
            let waker = Waker::from(Arc::clone(&tasks[task]));
            Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_ready()
        };
        for _ in 0..3 {
            assert!(!poll(0));
        }
        assert_eq!(polls.load(Ordering::SeqCst), 1);
        for times in 1..3 {
            inner.wake();
            assert_eq!(woken(), [times, 0]);
            assert!(!poll(0) && !poll(0));
            assert_eq!(polls.load(Ordering::SeqCst), times + 1);
        }
        inner.wake();
        assert!(poll(1), "it is ready");
        assert_eq!((woken(), polls.load(Ordering::SeqCst)), ([3, 0], 4));
    }

    #[test]
    fn what_was_ready_is_polled_again() {
        let mut gate = WakeGate::default();
        let waker = Waker::from(Arc::new(CountingWaker::default()));
        let mut polls = 0;
        for (is_ready, polled_ready) in [(true, true), (true, true), (false, false), (true, false)] {
            let polled = gate.poll(&mut Context::from_waker(&waker), |_| {
                polls += 1;
                if is_ready { Poll::Ready(()) } else { Poll::Pending }
            });
            assert_eq!(polled.is_ready(), polled_ready, "poll {polls}");
        }
        assert_eq!(polls, 3, "nothing woke the one that was not ready");
    }

    #[test]
    fn another_task_is_woken_from_its_first_poll_on() {
        let inner = Arc::new(AtomicWaker::new());
        let registered = Arc::clone(&inner);
        let mut future = PollIfWoken::new(poll_fn(move |cx| {
            registered.register(cx.waker());
            Poll::<()>::Pending
        }));
        let tasks = [(); 2].map(|()| Arc::new(CountingWaker::default()));
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        inner.wake();
        assert_eq!(tasks.map(|task| task.0.load(Ordering::SeqCst)), [0, 1]);
    }

    /// Wake-ups from another thread, at any moment of a poll.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_up_is_lost() {
        for _ in 0..2_000 {
            let (sender, mut receiver) = watch::channel(false);
            let mut changed = PollIfWoken::new(Box::pin(async move { receiver.wait_for(|now| *now).await.is_ok() }));
            let waiting = tokio::spawn(async move {
                // Something else wakes the task, too.
                tokio::select! {
                    biased;
                    () = async { loop { tokio::task::yield_now().await } } => false,
                    is_changed = &mut changed => is_changed,
                }
            });
            let sending = tokio::spawn(async move { sender.send(true).is_ok() });
            let ended = timeout(Duration::from_secs(30), waiting).await.expect("the wake-up was not lost");
            assert!(ended.unwrap() && sending.await.unwrap());
        }
    }
}
