//! The real clock: the one place that asks what time it is.

use model::Millis;
use model::ports::Clock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Microseconds since 1970, for those who measure. Nothing is decided by it.
    #[must_use]
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
    #[expect(clippy::disallowed_methods, reason = "this is the door that everything else goes through")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}
