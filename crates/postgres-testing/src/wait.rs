//! Polling with a bound.

use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `is_done`; false if it was not within `limit`.
pub(crate) fn wait_until(limit: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if is_done() {
            return true;
        }
        if started.elapsed() > limit {
            return false;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing tells when a process of somebody else is ready or gone"
        )]
        std::thread::sleep(POLL_INTERVAL);
    }
}
