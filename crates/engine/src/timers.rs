//! The moments that a run waits for. Few at a time: one sleeper for the next of them.

use machine::TimerId;
use model::Millis;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
pub(crate) struct Timers {
    /// Each with its moment, and when that is on the machine's own clock.
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

    /// The next moment.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        self.armed.iter().map(|(_, at, _)| *at).min()
    }

    /// A timer that is due. It is not armed any more.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<TimerId> {
        let first = (0..).zip(&self.armed).min_by_key(|(_, (_, _, due))| *due);
        let Some((place, due)) = first.map(|(place, (_, _, due))| (place, *due)) else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.sleep = None;
        Poll::Ready(self.armed.swap_remove(place).0)
    }
}
