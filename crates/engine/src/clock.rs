//! The system clock: the one place that reads it. Everything else takes a [`Clock`].

use model::Millis;
use model::ports::Clock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Microseconds since the Unix epoch, for measurements only.
    pub fn now_us(self) -> u64 {
        u64::try_from(since_unix_epoch().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        u64::try_from(since_unix_epoch().as_millis()).unwrap_or(u64::MAX)
    }
}

fn since_unix_epoch() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}
