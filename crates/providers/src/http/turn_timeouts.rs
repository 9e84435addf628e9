//! The time-outs of one turn.

use super::failure::{FailureSource, TimeoutKind};
use super::settings::HttpTimeouts;
use model::model_turn::ModelFailure;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Keeps deadlines within the range of `Instant`.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

#[derive(Clone, Copy)]
pub(super) struct TurnTimeouts {
    timeouts: HttpTimeouts,
    started_at: Instant,
    /// `None` once the response has begun.
    request_sent_at: Option<Instant>,
}

impl TurnTimeouts {
    pub(super) fn new(timeouts: HttpTimeouts) -> Self {
        let now = Instant::now();
        Self { timeouts, started_at: now, request_sent_at: Some(now) }
    }

    /// For a second request within the turn: the total time-out keeps running.
    pub(super) fn restart_first_byte(&mut self) {
        self.request_sent_at = Some(Instant::now());
    }

    pub(super) fn on_first_event(&mut self) {
        self.request_sent_at = None;
    }

    /// Awaits `future` within the current time-outs. The total one is checked first, because a service that never stops
    /// sending is always ready.
    pub(super) async fn timeout<T>(
        &self,
        source: &FailureSource<'_>,
        future: impl Future<Output = T>,
    ) -> Result<T, ModelFailure> {
        let total = self.timeouts.total;
        let now = Instant::now();
        let end = deadline_after(self.started_at, total);
        if now >= end {
            return Err(source.timed_out(TimeoutKind::Total, total));
        }
        // Idle time starts now: the consumer's own delays do not count.
        let (since, kind, limit) = match self.request_sent_at {
            Some(sent_at) => (sent_at, TimeoutKind::FirstByte, self.timeouts.first_byte),
            None => (now, TimeoutKind::Idle, self.timeouts.idle),
        };
        let (due, kind, limit) = match deadline_after(since, limit) {
            due if due < end => (due, kind, limit),
            _ => (end, TimeoutKind::Total, total),
        };
        timeout_at(due, future).await.map_err(|_| source.timed_out(kind, limit))
    }
}

fn deadline_after(since: Instant, limit: Duration) -> Instant {
    since + limit.min(TIMEOUT_MAX)
}
