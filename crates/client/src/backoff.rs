//! Waiting for a server that is away.

use std::time::Duration;

const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The wait before the next attempt, longer each time.
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF_MIN)
    }
}

impl Backoff {
    /// Tells why, and waits.
    pub async fn wait(&mut self, why: &str, note: impl Fn(&str)) {
        let wait = jittered_backoff(self.0, getrandom::u32().unwrap_or_default());
        self.0 = self.0.saturating_mul(2).min(BACKOFF_MAX);
        note(&format!("{why}; reconnecting in {:.1} s", wait.as_secs_f64()));
        tokio::time::sleep(wait).await;
    }
}

/// The innermost cause: "connection refused" rather than "error sending request".
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// Between half of `backoff` and all of it, so that clients do not reconnect at once.
fn jittered_backoff(backoff: Duration, random: u32) -> Duration {
    let half = backoff / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_between_half_and_all_of_its_backoff() {
        let wait = Duration::from_secs(4);
        assert_eq!(jittered_backoff(wait, 0), Duration::from_secs(2));
        assert_eq!(jittered_backoff(wait, u32::MAX), wait);
    }
}
