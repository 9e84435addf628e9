//! Waiting for another process.

use std::time::{Duration, Instant};

const WAIT_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls `find` until it finds something.
pub(crate) fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(started.elapsed() < WAIT_MAX, "no sign of {what} within {WAIT_MAX:?}");
        #[expect(clippy::disallowed_methods, reason = "nothing tells what another process has done")]
        std::thread::sleep(POLL_INTERVAL);
    }
}
