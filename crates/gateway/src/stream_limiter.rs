//! Bounds how many things of each user are open at a time: streams, and requests in flight.

use model::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts per user, up to a limit.
#[derive(Debug)]
pub struct UserCounter {
    open_counts: Mutex<HashMap<UserId, usize>>,
    per_user_max: usize,
}

/// One that is counted, until it is dropped.
#[derive(Debug)]
pub struct CountedPermit {
    counter: Arc<UserCounter>,
    user: UserId,
}

impl UserCounter {
    pub fn new(per_user_max: usize) -> Arc<Self> {
        Arc::new(Self { open_counts: Mutex::default(), per_user_max })
    }

    pub fn try_acquire(self: &Arc<Self>, user: &UserId) -> Option<CountedPermit> {
        let mut open = self.lock();
        let count = open.entry(user.clone()).or_default();
        if *count >= self.per_user_max {
            return None;
        }
        *count += 1;
        drop(open);
        Some(CountedPermit { counter: Arc::clone(self), user: user.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<UserId, usize>> {
        self.open_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedPermit {
    fn drop(&mut self) {
        let mut open = self.counter.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

/// Bounds the number of open streams per user, and counts them in the metrics.
#[derive(Debug)]
pub struct StreamLimiter {
    streams: Arc<UserCounter>,
}

/// One open stream, until it is dropped.
#[derive(Debug)]
pub struct StreamPermit {
    _counted: CountedPermit,
}

impl StreamLimiter {
    pub fn new(per_user_max: usize) -> Arc<Self> {
        Arc::new(Self { streams: UserCounter::new(per_user_max) })
    }

    pub fn try_acquire(&self, user: &UserId) -> Option<StreamPermit> {
        let counted = self.streams.try_acquire(user)?;
        metrics::gauge!("headwater_streams_open").increment(1.0);
        Some(StreamPermit { _counted: counted })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        metrics::gauge!("headwater_streams_open").decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_separate_limit_that_is_released() {
        let limiter = StreamLimiter::new(2);
        let (ann, ben) = (UserId::from("ann"), UserId::from("ben"));
        let first = limiter.try_acquire(&ann);
        let _second = limiter.try_acquire(&ann);
        assert!(limiter.try_acquire(&ann).is_none());
        assert!(limiter.try_acquire(&ben).is_some());
        drop(first);
        assert!(limiter.try_acquire(&ann).is_some());
        assert_eq!(limiter.streams.lock().get(&ben), None, "nobody who left is remembered");
    }
}
