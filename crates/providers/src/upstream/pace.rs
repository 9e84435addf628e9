//! How long there is still to wait.

use super::Timeouts;
use super::failure::{Place, Wait};
use model::model_turn::ModelFailure;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The longest that is waited for anything: no clock of this process counts further.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The time-outs of one turn.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    timeouts: Timeouts,
    began: Instant,
    /// When the request was sent; `None` once the answer has begun.
    asked: Option<Instant>,
}

impl Pace {
    /// From now on.
    pub(super) fn new(timeouts: Timeouts) -> Self {
        let now = Instant::now();
        Self { timeouts, began: now, asked: Some(now) }
    }

    /// The request is sent once more: there is a new first byte to wait for, but no more time in all.
    pub(super) fn again(&mut self) {
        self.asked = Some(Instant::now());
    }

    /// The answer has begun.
    pub(super) fn begun(&mut self) {
        self.asked = None;
    }

    /// Waits for something, as long as there is time. What has come is taken, but not after the end of all time: a
    /// service that never stops is always ready.
    pub(super) async fn within<T>(&self, place: &Place<'_>, what: impl Future<Output = T>) -> Result<T, ModelFailure> {
        let total = self.timeouts.total;
        let now = Instant::now();
        let end = after(self.began, total);
        if now >= end {
            return Err(place.late(Wait::Total, total));
        }
        // What the reader did in between is not the service's silence, so that begins now.
        let (since, wait, limit) = match self.asked {
            Some(asked) => (asked, Wait::FirstByte, self.timeouts.first_byte),
            None => (now, Wait::Idle, self.timeouts.idle),
        };
        let (due, wait, limit) = match after(since, limit) {
            due if due < end => (due, wait, limit),
            _ => (end, Wait::Total, total),
        };
        timeout_at(due, what).await.map_err(|_| place.late(wait, limit))
    }
}

fn after(since: Instant, limit: Duration) -> Instant {
    since + limit.min(LONGEST)
}
