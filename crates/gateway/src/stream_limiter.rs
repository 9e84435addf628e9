//! Bounds the number of open streams per user.

use model::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct StreamLimiter {
    open_counts: Mutex<HashMap<UserId, usize>>,
    per_user_max: usize,
}

/// One open stream, until it is dropped.
#[derive(Debug)]
pub struct StreamPermit {
    limiter: Arc<StreamLimiter>,
    user: UserId,
}

impl StreamLimiter {
    pub fn new(per_user_max: usize) -> Arc<Self> {
        Arc::new(Self { open_counts: Mutex::default(), per_user_max })
    }

    pub fn try_acquire(self: &Arc<Self>, user: &UserId) -> Option<StreamPermit> {
        let mut open = self.lock();
        let count = open.entry(user.clone()).or_default();
        if *count >= self.per_user_max {
            return None;
        }
        *count += 1;
        drop(open);
        metrics::gauge!("headwater_streams_open").increment(1.0);
        Some(StreamPermit { limiter: Arc::clone(self), user: user.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<UserId, usize>> {
        self.open_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        metrics::gauge!("headwater_streams_open").decrement(1.0);
        let mut open = self.limiter.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_separate_limit_that_is_released() {
        let streams = StreamLimiter::new(2);
        let (ann, ben) = (UserId::from("ann"), UserId::from("ben"));
        let first = streams.try_acquire(&ann);
        let _second = streams.try_acquire(&ann);
        assert!(streams.try_acquire(&ann).is_none());
        assert!(streams.try_acquire(&ben).is_some());
        drop(first);
        assert!(streams.try_acquire(&ann).is_some());
        assert_eq!(streams.lock().get(&ben), None, "nobody who left is remembered");
    }
}
