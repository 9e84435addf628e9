//! Places, of which no one user can take all.
//!
//! Whoever sends a file slowly, or points at sites that never answer, holds a place for as long as that takes, again and
//! again. Others would find none.

use model::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// So many things at a time, and fewer of one user.
pub(crate) struct UserSemaphore {
    global: Arc<Semaphore>,
    per_user_max: usize,
    /// Those of users who have a place or wait for one.
    by_user: Mutex<HashMap<UserId, Arc<Semaphore>>>,
}

/// A place, until it is dropped.
pub(crate) struct UserPermit {
    _user: OwnedSemaphorePermit,
    _global: OwnedSemaphorePermit,
}

impl UserSemaphore {
    /// One user has at most `user_max` of them, and at least one.
    pub(crate) fn new(max: usize, user_max: usize) -> Self {
        Self { global: Arc::new(Semaphore::new(max)), per_user_max: user_max.max(1), by_user: Mutex::default() }
    }

    /// A place for this user; none if others leave none for so long. Who waits for a place of their own is patient: each
    /// of these is free after a while, and somebody who points at many files wants all of them.
    pub(crate) async fn acquire(&self, user: &UserId, wait_max: Duration) -> Option<UserPermit> {
        // In this order: who has had enough stands in nobody's way.
        let of_user = self.semaphore_of(user).acquire_owned().await.ok()?;
        let of_all = timeout(wait_max, Arc::clone(&self.global).acquire_owned()).await.ok()?.ok()?;
        Some(UserPermit { _user: of_user, _global: of_all })
    }

    /// A place for this user, if there is one now.
    pub(crate) fn try_acquire(&self, user: &UserId) -> Option<UserPermit> {
        let of_user = self.semaphore_of(user).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.global).try_acquire_owned().ok()?;
        Some(UserPermit { _user: of_user, _global: of_all })
    }

    fn semaphore_of(&self, user: &UserId) -> Arc<Semaphore> {
        let mut users = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(users.entry(user.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.per_user_max))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::pin::pin;

    #[tokio::test]
    async fn one_user_leaves_places_for_others_and_gets_back_what_was_left() {
        let places = UserSemaphore::new(4, 3);
        let (greedy, modest) = (UserId::from("a"), UserId::from("b"));
        let now = Duration::ZERO;
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(places.acquire(&greedy, now).await.unwrap());
        }
        let mut fourth = pin!(places.acquire(&greedy, now));
        assert!(fourth.as_mut().now_or_never().is_none(), "who has three waits for one of them");
        assert!(places.try_acquire(&greedy).is_none());
        let last = places.acquire(&modest, now).await.unwrap();
        assert!(places.acquire(&modest, now).await.is_none(), "there are only four");
        assert!(places.try_acquire(&modest).is_none());
        drop(taken.pop());
        assert!(fourth.await.is_some(), "however long it took");
        assert!(places.acquire(&modest, now).await.is_some());
        assert!(places.try_acquire(&modest).is_some());
        drop((taken, last));
        let _only = places.acquire(&modest, now).await.unwrap();
        assert_eq!(places.by_user.lock().unwrap().len(), 1, "who has no place is forgotten");
    }
}
