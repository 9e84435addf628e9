//! Places at the desk, of which no one user can take all.
//!
//! Whoever points at sites that never answer holds a place until the time is up, again and again. Others would find none.

use model::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// So many things at a time, and fewer of one user.
pub(super) struct Places {
    all: Arc<Semaphore>,
    user_max: usize,
    /// Those of users who have a place or wait for one.
    users: Mutex<HashMap<UserId, Arc<Semaphore>>>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Places {
    /// One user has at most `user_max` of them, and at least one.
    pub(super) fn new(max: usize, user_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(max)), user_max: user_max.max(1), users: Mutex::default() }
    }

    /// A place for this user; none if it takes too long to get one.
    pub(super) async fn take(&self, user: &UserId, wait_max: Duration) -> Option<Place> {
        let own = self.of(user);
        // In this order: who has had enough stands in nobody's way.
        let both = async { (own.acquire_owned().await, Arc::clone(&self.all).acquire_owned().await) };
        match timeout(wait_max, both).await {
            Ok((Ok(of_user), Ok(of_all))) => Some(Place { _of_user: of_user, _of_all: of_all }),
            _ => None,
        }
    }

    fn of(&self, user: &UserId) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(users.entry(user.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.user_max))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_user_leaves_places_for_others_and_gets_back_what_was_left() {
        let places = Places::new(4, 3);
        let (greedy, modest) = (UserId::from("a"), UserId::from("b"));
        let now = Duration::ZERO;
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(places.take(&greedy, now).await.unwrap());
        }
        assert!(places.take(&greedy, now).await.is_none());
        let last = places.take(&modest, now).await.unwrap();
        assert!(places.take(&modest, now).await.is_none(), "there are only four");
        drop(taken.pop());
        assert!(places.take(&modest, now).await.is_some());
        assert!(places.take(&greedy, now).await.is_some());
        drop((taken, last));
        let _only = places.take(&modest, now).await.unwrap();
        assert_eq!(places.users.lock().unwrap().len(), 1, "who has no place is forgotten");
    }
}
