//! The wall clock in microseconds, for timestamps in deltas.
//!
//! A timestamp passes through another process, so it cannot be an `Instant`. Sender and reader run on one machine and
//! read the same clock; durations inside one process use `Instant`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a stamp is compared between processes: it has to be the wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
