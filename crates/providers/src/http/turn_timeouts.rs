//! The time-outs of one turn.

use super::failure::{FailureSource, TimeoutKind};
use super::settings::HttpTimeouts;
use model::model_turn::ModelFailure;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

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

    /// Awaits `future` within the current time-outs. The total one is checked first, because a service that never stops
    /// sending is always ready.
    pub(super) async fn timeout<T>(
        &self,
        source: &FailureSource<'_>,
        future: impl Future<Output = T>,
    ) -> Result<T, ModelFailure> {
        let now = Instant::now();
        self.check_total(now).map_err(|timeout| timeout.to_failure(source))?;
        let timeout = self.next_timeout(now);
        timeout_at(timeout.due, future).await.map_err(|_| timeout.to_failure(source))
    }

    fn check_total(&self, now: Instant) -> Result<(), PendingTimeout> {
        let timeout = self.total_timeout();
        if now < timeout.due { Ok(()) } else { Err(timeout) }
    }

    /// The time-out that a wait since `waiting_since` reaches first. Idle time begins with the wait: the consumer's own
    /// delays do not count.
    fn next_timeout(&self, waiting_since: Instant) -> PendingTimeout {
        let (since, kind, limit) = match self.request_sent_at {
            Some(sent_at) => (sent_at, TimeoutKind::FirstByte, self.timeouts.first_byte),
            None => (waiting_since, TimeoutKind::Idle, self.timeouts.idle),
        };
        let (timeout, total) =
            (PendingTimeout { due: deadline_after(since, limit), kind, limit }, self.total_timeout());
        if timeout.due < total.due { timeout } else { total }
    }

    fn total_timeout(&self) -> PendingTimeout {
        let limit = self.timeouts.total;
        PendingTimeout { due: deadline_after(self.started_at, limit), kind: TimeoutKind::Total, limit }
    }
}

/// A time-out and when it is due.
#[derive(Clone, Copy)]
pub(super) struct PendingTimeout {
    due: Instant,
    kind: TimeoutKind,
    limit: Duration,
}

impl PendingTimeout {
    pub(super) fn to_failure(self, source: &FailureSource<'_>) -> ModelFailure {
        source.timed_out(self.kind, self.limit)
    }
}

/// The time-outs while a response is read, chunk after chunk. One timer serves all waits: a chunk leaves it as it is, and
/// only when it fires, mostly long before the wait is over, is it set to the time that counts by then.
pub(super) struct ChunkTimer {
    timeouts: TurnTimeouts,
    /// Since when the next chunk is awaited.
    waiting_since: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl ChunkTimer {
    pub(super) fn new(timeouts: TurnTimeouts) -> Self {
        let due = timeouts.next_timeout(Instant::now()).due;
        Self { timeouts, waiting_since: None, sleep: Box::pin(sleep_until(due)) }
    }

    /// From the first event on, the idle time-out applies instead of the one for the first byte.
    pub(super) fn on_event(&mut self) {
        self.timeouts.request_sent_at = None;
    }

    /// To be called before each attempt to read: a service that never stops sending is always ready, and no wait would
    /// notice that the total time is over.
    pub(super) fn check_total(&mut self) -> Result<(), PendingTimeout> {
        if self.waiting_since.is_some() {
            return Ok(());
        }
        let now = Instant::now();
        self.waiting_since = Some(now);
        self.timeouts.check_total(now)
    }

    /// The wait is over.
    pub(super) fn on_chunk(&mut self) {
        self.waiting_since = None;
    }

    /// To be called while there is nothing to read; ready when a time-out is over.
    pub(super) fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<PendingTimeout> {
        let timeout = self.timeouts.next_timeout(*self.waiting_since.get_or_insert_with(Instant::now));
        if timeout.due < self.sleep.deadline() {
            self.sleep.as_mut().reset(timeout.due);
        }
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            if self.sleep.deadline() >= timeout.due {
                return Poll::Ready(timeout);
            }
            self.sleep.as_mut().reset(timeout.due);
        }
    }
}

fn deadline_after(since: Instant, limit: Duration) -> Instant {
    since + limit.min(TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Waker;
    use tokio::time::{advance, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    fn reading_timer() -> ChunkTimer {
        let timeouts = HttpTimeouts { first_byte: 30 * SECOND, idle: 10 * SECOND, total: 100 * SECOND };
        let mut timer = ChunkTimer::new(TurnTimeouts::new(timeouts));
        timer.on_event();
        timer
    }

    fn is_waiting(timer: &mut ChunkTimer) -> bool {
        timer.check_total().is_ok() && timer.poll_timeout(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test(start_paused = true)]
    async fn every_chunk_begins_a_new_wait_and_the_time_of_the_consumer_does_not_count() {
        let mut timer = reading_timer();
        for _ in 0..3 {
            assert!(is_waiting(&mut timer));
            advance(9 * SECOND).await;
            assert!(is_waiting(&mut timer));
            timer.on_chunk();
            advance(11 * SECOND).await;
        }
        assert!(is_waiting(&mut timer));
        let begun = Instant::now();
        let timeout = poll_fn(|cx| timer.poll_timeout(cx)).await;
        assert_eq!((timeout.kind, timeout.limit), (TimeoutKind::Idle, 10 * SECOND));
        assert!((10 * SECOND..11 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_total_time_ends_waits_and_reads() {
        let mut timer = reading_timer();
        let mut pauses = 0;
        while is_waiting(&mut timer) {
            timer.on_chunk();
            sleep(9 * SECOND).await;
            pauses += 1;
        }
        assert_eq!(pauses, 12, "12 × 9 s are more than 100 s");
        let mut timer = reading_timer();
        sleep(95 * SECOND).await;
        assert!(is_waiting(&mut timer));
        let begun = Instant::now();
        let timeout = poll_fn(|cx| timer.poll_timeout(cx)).await;
        assert_eq!((timeout.kind, timeout.limit), (TimeoutKind::Total, 100 * SECOND));
        assert!((5 * SECOND..6 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_time_out_shorter_than_the_first_wait_is_noticed_in_time() {
        let timeouts = HttpTimeouts { first_byte: 30 * SECOND, idle: 2 * SECOND, total: 100 * SECOND };
        let mut timer = ChunkTimer::new(TurnTimeouts::new(timeouts));
        assert!(is_waiting(&mut timer));
        timer.on_chunk();
        timer.on_event();
        assert!(is_waiting(&mut timer));
        let begun = Instant::now();
        assert_eq!(poll_fn(|cx| timer.poll_timeout(cx)).await.kind, TimeoutKind::Idle);
        assert!((2 * SECOND..3 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
