//! How much a server may send: a burst, and so much per second after it.

use crate::limits::{BYTES_BURST, BYTES_PER_SECOND, LINES_BURST, LINES_PER_SECOND};
use tokio::time::Instant;

/// The server has sent more than it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RateExceeded;

pub(crate) struct MessageRate {
    lines: f64,
    bytes: f64,
    at: Instant,
}

impl MessageRate {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { lines: LINES_BURST, bytes: BYTES_BURST, at: now }
    }

    /// Counts a line that has arrived.
    pub(crate) fn count_line(&mut self, bytes: usize, now: Instant) -> Result<(), RateExceeded> {
        self.count(1.0, bytes, now)
    }

    /// Counts bytes that may be no line.
    pub(crate) fn count_bytes(&mut self, bytes: usize, now: Instant) -> Result<(), RateExceeded> {
        self.count(0.0, bytes, now)
    }

    #[expect(clippy::cast_precision_loss, reason = "a line is far shorter than 2^52 bytes")]
    fn count(&mut self, lines: f64, bytes: usize, now: Instant) -> Result<(), RateExceeded> {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.lines = (self.lines + seconds * LINES_PER_SECOND).min(LINES_BURST) - lines;
        self.bytes = (self.bytes + seconds * BYTES_PER_SECOND).min(BYTES_BURST) - bytes as f64;
        if self.lines < 0.0 || self.bytes < 0.0 { Err(RateExceeded) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_is_allowed_and_a_flood_is_not() {
        let start = Instant::now();
        let mut rate = MessageRate::new(start);
        assert_eq!((0..2048).find(|_| rate.count_line(10, start).is_err()), None);
        assert_eq!(rate.count_line(10, start), Err(RateExceeded));
        let mut rate = MessageRate::new(start);
        let steady = (1..10_000).map(|count| start + Duration::from_millis(count * 5));
        assert_eq!(steady.into_iter().find(|at| rate.count_line(1000, *at).is_err()), None, "200 per second");
    }

    #[test]
    fn long_messages_are_counted_by_their_bytes() {
        let start = Instant::now();
        let mut rate = MessageRate::new(start);
        let count = (0..100).take_while(|_| rate.count_line(4 * 1024 * 1024, start).is_ok()).count();
        assert_eq!(count, 8);
    }
}
