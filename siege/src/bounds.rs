//! What is promised to another user under every attack, and how a measured value compares with it.

use crate::memory_limit::LIMIT_BYTES;
use std::time::Duration;

/// The first token of another user: its median is at most this multiple of the median without an attack.
pub(crate) const MEDIAN_FACTOR: u32 = 3;
pub(crate) const FIRST_TOKEN_MAX: Duration = Duration::from_secs(1);
pub(crate) const READY_MAX: Duration = Duration::from_secs(2);
/// What a process may take to end, and the siege to notice it, beyond the grace.
pub(crate) const STOP_MARGIN: Duration = Duration::from_millis(500);
/// `[limits] connections_max` × 64 KiB.
pub(crate) const MEMORY_MAX_MIB: u64 = LIMIT_BYTES / 1024 / 1024;
/// A time alone fails the siege only far beyond its bound: the machine may be busy with something else.
const FAILURE_FACTOR: u32 = 5;

/// How a value compares with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BoundVerdict {
    Kept,
    Missed,
    /// So far beyond the bound that the siege fails.
    Broken,
}

/// The bounds of a siege, which depend on its idle figures and on the server's grace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) median_max: Duration,
    pub(crate) stop_max: Duration,
}

impl Bounds {
    pub(crate) fn new(idle_median: Duration, stop_grace: Duration) -> Self {
        Self { median_max: idle_median * MEDIAN_FACTOR, stop_max: stop_grace + STOP_MARGIN }
    }

    /// The bound of an attack, right before which the idle server had this median: the machine may have become busy with
    /// something else since the siege began.
    pub(crate) fn median_max_after(&self, idle_median: Duration) -> Duration {
        self.median_max.max(idle_median * MEDIAN_FACTOR)
    }
}

pub(crate) fn compare_time(value: Duration, bound: Duration) -> BoundVerdict {
    match value {
        _ if value <= bound => BoundVerdict::Kept,
        _ if value <= bound * FAILURE_FACTOR => BoundVerdict::Missed,
        _ => BoundVerdict::Broken,
    }
}

/// Memory is no matter of speed: beyond its bound it is broken.
pub(crate) const fn compare_memory(mib: u64) -> BoundVerdict {
    if mib <= MEMORY_MAX_MIB { BoundVerdict::Kept } else { BoundVerdict::Broken }
}

/// The middle one of the values; none of none.
pub(crate) fn median_of(values: &[Duration]) -> Option<Duration> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_fails_at_five_times_its_bound() {
        let second = Duration::from_secs(1);
        assert_eq!(compare_time(second, second), BoundVerdict::Kept);
        assert_eq!(compare_time(second * 2, second), BoundVerdict::Missed);
        assert_eq!(compare_time(second * 5 + Duration::from_millis(1), second), BoundVerdict::Broken);
        assert_eq!(compare_memory(MEMORY_MAX_MIB + 1), BoundVerdict::Broken);
    }

    #[test]
    fn the_bound_of_the_median_follows_the_idle_server() {
        let ms = Duration::from_millis;
        let bounds = |idle| Bounds::new(ms(idle), ms(5_000)).median_max;
        assert_eq!([bounds(20), bounds(3)], [60, 9].map(ms));
        let later = |idle| Bounds::new(ms(20), ms(5_000)).median_max_after(ms(idle));
        assert_eq!([later(10), later(30)], [60, 90].map(ms), "a busier machine later");
        assert_eq!(median_of(&[3, 1, 2].map(ms)), Some(ms(2)));
    }
}
