//! A limit on events per minute, per user or per address.
//!
//! Each key has the time at which its allowance is full again (the generic cell rate algorithm). An allowance that is full
//! is forgotten, so memory follows the number of keys that were used in the last minute.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// Full allowances are removed when the map has grown to this size, and then whenever it has doubled.
const PRUNE_KEYS_MIN: usize = 1024;

pub struct RateLimiter<K> {
    per_minute: u32,
    state: Mutex<LimiterState<K>>,
}

struct LimiterState<K> {
    full_at: HashMap<K, Instant>,
    prune_at: usize,
}

impl<K: Hash + Eq + Clone> RateLimiter<K> {
    /// Allows `per_minute` at once, and then as many per minute. 0 allows everything.
    pub fn new(per_minute: u32) -> Self {
        let state = LimiterState { full_at: HashMap::new(), prune_at: PRUNE_KEYS_MIN };
        Self { per_minute, state: Mutex::new(state) }
    }

    pub const fn per_minute(&self) -> u32 {
        self.per_minute
    }

    /// Counts one. The error is how long to wait for the next.
    pub fn take(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let Some(interval) = MINUTE.checked_div(self.per_minute) else { return Ok(()) };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.full_at.len() >= state.prune_at {
            state.full_at.retain(|_, full_at| *full_at > now);
            state.prune_at = (state.full_at.len() * 2).max(PRUNE_KEYS_MIN);
        }
        let full_at = state.full_at.get(key).copied().filter(|full_at| *full_at > now).unwrap_or(now);
        let next = full_at + interval;
        let excess = next.saturating_duration_since(now).saturating_sub(MINUTE);
        if excess > Duration::ZERO {
            return Err(excess);
        }
        state.full_at.insert(key.clone(), next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_per_key_and_comes_back() {
        let limiter = RateLimiter::new(60);
        let start = Instant::now();
        for _ in 0..60 {
            assert_eq!(limiter.take(&"ann", start), Ok(()));
        }
        assert_eq!(limiter.take(&"ann", start), Err(Duration::from_secs(1)));
        assert_eq!(limiter.take(&"ben", start), Ok(()));
        let later = start + Duration::from_secs(2);
        assert_eq!(limiter.take(&"ann", later), Ok(()));
        assert_eq!(limiter.take(&"ann", later), Ok(()));
        assert!(limiter.take(&"ann", later).is_err());
        assert_eq!(RateLimiter::new(0).take(&"ann", start), Ok(()), "no limit");
    }

    #[test]
    fn keys_that_are_not_used_are_forgotten() {
        let limiter = RateLimiter::new(60);
        let start = Instant::now();
        for key in 0..PRUNE_KEYS_MIN {
            assert_eq!(limiter.take(&key, start), Ok(()));
        }
        assert_eq!(limiter.take(&usize::MAX, start + MINUTE), Ok(()));
        assert_eq!(limiter.state.lock().unwrap().full_at.len(), 1);
    }
}
