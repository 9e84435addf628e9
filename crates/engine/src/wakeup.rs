//! Wakes the actor of a thread.

use futures_util::task::AtomicWaker;
use model::Millis;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

/// Tells an actor to read its inbox and the stop mode. A level, not a queue: no notification is lost and none piles up.
#[derive(Default)]
pub(crate) struct Wakeup {
    notified: AtomicBool,
    waker: AtomicWaker,
    /// The time of the timer for which the actor was woken, or zero.
    due_timer: AtomicU64,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// The timer with this time is due, whatever the clock says.
    pub(crate) fn set_due_timer(&self, at: Millis) {
        self.due_timer.store(at, Ordering::SeqCst);
    }

    pub(crate) fn take_due_timer(&self) -> Option<Millis> {
        Some(self.due_timer.swap(0, Ordering::SeqCst)).filter(|at| *at > 0)
    }

    /// Clears the notification and returns whether there was one.
    pub(crate) fn take_notified(&self) -> bool {
        // It is rarely set, and an actor looks at it for every event.
        self.notified.load(Ordering::SeqCst) && self.notified.swap(false, Ordering::SeqCst)
    }

    /// Wakes the actor without a notification: it polls, but does not read its inbox.
    pub(crate) fn wake_only(&self) {
        self.waker.wake();
    }

    pub(crate) fn register_waker(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    pub(crate) fn poll_notified(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.register_waker(cx);
        if self.take_notified() { Poll::Ready(()) } else { Poll::Pending }
    }
}
