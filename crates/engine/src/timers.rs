//! The timers of a run. There are few at a time: one `Sleep` for the next of them.

use machine::TimerId;
use model::Millis;
use model::ports::Clock;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
pub(crate) struct Timers {
    /// Each with its time, and that time on the monotonic clock.
    armed: Vec<(TimerId, Millis, Instant)>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timers {
    pub(crate) fn arm(&mut self, id: TimerId, at: Millis, now: Millis) {
        self.armed.retain(|(armed, ..)| *armed != id);
        self.armed.push((id, at, Instant::now() + Duration::from_millis(at.saturating_sub(now))));
        self.sleep = None;
    }

    pub(crate) fn disarm(&mut self, id: &TimerId) {
        self.armed.retain(|(armed, ..)| armed != id);
        self.sleep = None;
    }

    pub(crate) fn next_due(&self) -> Option<Millis> {
        self.armed.iter().map(|(_, at, _)| *at).min()
    }

    /// Removes and returns a timer that is due. Approvals are also due by the wall clock, by which the store refuses
    /// decisions: it may have been set forward.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>, clock: &dyn Clock) -> Poll<TimerId> {
        let is_expired =
            |(id, at, _): &(TimerId, Millis, Instant)| matches!(id, TimerId::Approval(_)) && *at <= clock.now();
        if let Some(index) = self.armed.iter().position(is_expired) {
            self.sleep = None;
            return Poll::Ready(self.armed.swap_remove(index).0);
        }
        let first = (0..).zip(&self.armed).min_by_key(|(_, (_, _, due))| *due);
        let Some((index, due)) = first.map(|(index, (_, _, due))| (index, *due)) else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.sleep = None;
        Poll::Ready(self.armed.swap_remove(index).0)
    }
}
