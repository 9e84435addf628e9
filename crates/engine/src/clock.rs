//! The system clock: the one place that reads it. Everything else takes a [`Clock`].
//!
//! A wall clock can be set. Set forward, it is followed. Set back, this one goes on from where it was, at the speed of the
//! monotonic clock, until the wall clock has caught up or the process ends: nothing that expires lives longer because
//! somebody changed the time.

use model::Millis;
use model::ports::Clock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock may be behind by this much before the log says so: clocks are adjusted by milliseconds all the time.
const LAG_REPORTED_US: u64 = 1_000_000;

/// One for the process: all its parts agree on the time.
static PROCESS_CLOCK: ForwardClock = ForwardClock::new();

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Microseconds since the Unix epoch.
    pub fn now_us(self) -> u64 {
        static PROCESS_START: OnceLock<Instant> = OnceLock::new();
        let start = PROCESS_START.get_or_init(Instant::now);
        // In this order: a pause between the two must not look like a clock that was set forward.
        let wall_us = as_micros(since_unix_epoch());
        PROCESS_CLOCK.read(wall_us, as_micros(start.elapsed()))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        self.now_us() / 1_000
    }
}

/// A wall clock that never goes back.
struct ForwardClock {
    /// The time at which the monotonic clock was zero, according to the latest wall clock so far.
    origin_us: AtomicU64,
    /// How far behind the wall clock was when the log said so.
    reported_lag_us: AtomicU64,
}

impl ForwardClock {
    const fn new() -> Self {
        Self { origin_us: AtomicU64::new(0), reported_lag_us: AtomicU64::new(0) }
    }

    /// The time, from the wall clock and the monotonic clock, which was read after it.
    fn read(&self, wall_us: u64, monotonic_us: u64) -> u64 {
        let origin = wall_us.saturating_sub(monotonic_us);
        let mut latest = self.origin_us.load(Ordering::Relaxed);
        if origin > latest {
            // Rare, so that the cores do not contend for it.
            latest = self.origin_us.fetch_max(origin, Ordering::Relaxed).max(origin);
        }
        self.report_lag(latest.saturating_sub(origin));
        latest.saturating_add(monotonic_us)
    }

    /// Logs once that the wall clock was set back, and once that it has caught up.
    fn report_lag(&self, lag_us: u64) {
        let reported = self.reported_lag_us.load(Ordering::Relaxed);
        if lag_us > reported.saturating_add(LAG_REPORTED_US) {
            let seconds = lag_us / 1_000_000;
            tracing::warn!(seconds, "the clock was set back: times go on from the later one until the next start");
            self.reported_lag_us.store(lag_us, Ordering::Relaxed);
        } else if reported > 0 && lag_us < LAG_REPORTED_US {
            tracing::info!("the clock has caught up");
            self.reported_lag_us.store(0, Ordering::Relaxed);
        }
    }
}

fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn since_unix_epoch() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 24 * 60 * 60 * SECOND;

    #[test]
    fn a_clock_that_is_set_back_goes_on_from_where_it_was() {
        let (clock, start) = (ForwardClock::new(), 100 * DAY);
        assert_eq!(clock.read(start, 5), start);
        // Forward is followed at once.
        assert_eq!(clock.read(start + DAY, 5 + SECOND), start + DAY);
        // Back is not: time goes on at the speed of the monotonic clock.
        assert_eq!(clock.read(start + 2 * SECOND, 5 + 2 * SECOND), start + DAY + SECOND);
        assert_eq!(clock.read(start + 302 * SECOND, 5 + 302 * SECOND), start + DAY + 301 * SECOND);
        assert_eq!(clock.reported_lag_us.load(Ordering::Relaxed), DAY - SECOND);
        // Caught up.
        assert_eq!(clock.read(start + 2 * DAY, 5 + 303 * SECOND), start + 2 * DAY);
        assert_eq!(clock.reported_lag_us.load(Ordering::Relaxed), 0);
    }

    /// A process that is stopped between the two readings does not set the clock forward.
    #[test]
    fn a_pause_between_the_readings_is_no_jump() {
        let (clock, start) = (ForwardClock::new(), 100 * DAY);
        assert_eq!(clock.read(start, 0), start);
        assert_eq!(clock.read(start + SECOND, 31 * SECOND), start + 31 * SECOND);
        assert_eq!(clock.read(start + 32 * SECOND, 32 * SECOND), start + 32 * SECOND);
    }
}
