//! Calls that cannot start because the system is out of descriptors, processes or memory.
//!
//! Nothing has happened yet, and a moment later there may be some: the start is tried again until the deadline of the
//! call. Other users hold these resources, so it must not be this call's failure.

use rustix::io::Errno;
use std::error::Error;
use std::io;
use std::time::Duration;

const WAIT_MIN: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits between two attempts, longer each time.
pub(crate) struct StartBackoff(Duration);

impl Default for StartBackoff {
    fn default() -> Self {
        Self(WAIT_MIN)
    }
}

impl StartBackoff {
    pub(crate) async fn wait(&mut self, what: &str) {
        tracing::warn!(
            what,
            wait_ms = self.0.as_millis(),
            "out of descriptors, processes or memory: it is tried again"
        );
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(WAIT_MAX);
    }
}

pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM))
}

/// Whether a shortage is what caused an error.
pub(crate) fn has_shortage(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io_error = error.downcast_ref::<io::Error>();
        // What an `io::Error` wraps is not its source.
        let wrapped = io_error.and_then(io::Error::get_ref).is_some_and(|inner| has_shortage(inner));
        if wrapped || io_error.is_some_and(is_shortage) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_found_below_other_errors() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            assert!(has_shortage(&io::Error::other(error(errno))), "{errno}");
        }
        assert!(!has_shortage(&error(Errno::NOENT)));
        assert!(!has_shortage(&io::Error::other("else")));
    }
}
