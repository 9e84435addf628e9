//! How many streams each user has open. One more than allowed is refused, not suffered.

use model::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The streams that are open.
#[derive(Debug)]
pub(crate) struct Streams {
    open: Mutex<HashMap<UserId, usize>>,
    per_user_max: usize,
}

/// One open stream. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Slot {
    streams: Arc<Streams>,
    user: UserId,
}

impl Streams {
    pub(crate) fn new(per_user_max: usize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), per_user_max })
    }

    /// Room for one more, or nothing.
    pub(crate) fn enter(self: &Arc<Self>, user: &UserId) -> Option<Slot> {
        let mut open = self.lock();
        let count = open.entry(user.clone()).or_default();
        if *count >= self.per_user_max {
            return None;
        }
        *count += 1;
        drop(open);
        metrics::gauge!("headwater_streams_open").increment(1.0);
        Some(Slot { streams: Arc::clone(self), user: user.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<UserId, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        metrics::gauge!("headwater_streams_open").decrement(1.0);
        let mut open = self.streams.lock();
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
    fn each_user_has_room_of_their_own_and_gets_it_back() {
        let streams = Streams::new(2);
        let (ann, ben) = (UserId::from("ann"), UserId::from("ben"));
        let first = streams.enter(&ann);
        let _second = streams.enter(&ann);
        assert!(streams.enter(&ann).is_none());
        assert!(streams.enter(&ben).is_some());
        drop(first);
        assert!(streams.enter(&ann).is_some());
        assert_eq!(streams.lock().get(&ben), None, "nobody who left is remembered");
    }
}
