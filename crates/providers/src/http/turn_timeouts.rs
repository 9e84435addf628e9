//! How long there is still to wait.

use super::HttpTimeouts;
use super::failure::{FailureSource, TimeoutKind};
use model::model_turn::ModelFailure;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The longest that is waited for anything: no clock of this process counts further.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The time-outs of one turn.
#[derive(Clone, Copy)]
pub(super) struct TurnTimeouts {
    timeouts: HttpTimeouts,
    started_at: Instant,
    /// When the request was sent; `None` once the answer has begun.
    request_sent_at: Option<Instant>,
}

impl TurnTimeouts {
    /// From now on.
    pub(super) fn new(timeouts: HttpTimeouts) -> Self {
        let now = Instant::now();
        Self { timeouts, started_at: now, request_sent_at: Some(now) }
    }

    /// The request is sent once more: there is a new first byte to wait for, but no more time in all.
    pub(super) fn restart_first_byte(&mut self) {
        self.request_sent_at = Some(Instant::now());
    }

    /// The answer has begun.
    pub(super) fn on_first_event(&mut self) {
        self.request_sent_at = None;
    }

    /// Waits for something, as long as there is time. What has come is taken, but not after the end of all time: a
    /// service that never stops is always ready.
    pub(super) async fn timeout<T>(
        &self,
        place: &FailureSource<'_>,
        what: impl Future<Output = T>,
    ) -> Result<T, ModelFailure> {
        let total = self.timeouts.total;
        let now = Instant::now();
        let end = deadline_after(self.started_at, total);
        if now >= end {
            return Err(place.timed_out(TimeoutKind::Total, total));
        }
        // What the reader did in between is not the service's silence, so that begins now.
        let (since, wait, limit) = match self.request_sent_at {
            Some(asked) => (asked, TimeoutKind::FirstByte, self.timeouts.first_byte),
            None => (now, TimeoutKind::Idle, self.timeouts.idle),
        };
        let (due, wait, limit) = match deadline_after(since, limit) {
            due if due < end => (due, wait, limit),
            _ => (end, TimeoutKind::Total, total),
        };
        timeout_at(due, what).await.map_err(|_| place.timed_out(wait, limit))
    }
}

fn deadline_after(since: Instant, limit: Duration) -> Instant {
    since + limit.min(TIMEOUT_MAX)
}
