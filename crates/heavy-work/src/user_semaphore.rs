//! A semaphore of which no single user can hold all permits.
//!
//! A user who uploads slowly, or names web sites that never respond, holds permits for long. Without a limit per user
//! that would starve the others.

use model::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A global limit on concurrency, with a lower limit per user.
pub struct UserSemaphore {
    global: Arc<Semaphore>,
    per_user_max: usize,
    /// Semaphores of the users who hold a permit or wait for one.
    by_user: Mutex<HashMap<UserId, Arc<Semaphore>>>,
}

/// Released on drop.
pub struct UserPermit {
    _user: OwnedSemaphorePermit,
    _global: OwnedSemaphorePermit,
}

impl UserSemaphore {
    /// A user may hold `user_max` permits, and at least one.
    #[must_use]
    pub fn new(max: usize, user_max: usize) -> Self {
        // A semaphore panics if it is given more than it can count.
        let per_user_max = user_max.clamp(1, Semaphore::MAX_PERMITS);
        let global = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self { global, per_user_max, by_user: Mutex::default() }
    }

    /// Waits for a permit. Returns `None` when other users hold all global permits for `wait_max`. The wait for the user's
    /// own permits has no limit: they are released after a while, and a user who names many files wants all of them.
    pub async fn acquire(&self, user: &UserId, wait_max: Duration) -> Option<UserPermit> {
        // The user's permit first: a user over the limit must not occupy the global queue.
        let of_user = self.semaphore_of(user).acquire_owned().await.ok()?;
        let of_all = timeout(wait_max, Arc::clone(&self.global).acquire_owned()).await.ok()?.ok()?;
        Some(UserPermit { _user: of_user, _global: of_all })
    }

    /// Waits for a permit, however long. Returns `None` when the process stops.
    pub async fn acquire_in_turn(&self, user: &UserId) -> Option<UserPermit> {
        let of_user = self.semaphore_of(user).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.global).acquire_owned().await.ok()?;
        Some(UserPermit { _user: of_user, _global: of_all })
    }

    /// Returns a permit if one is free now.
    pub fn try_acquire(&self, user: &UserId) -> Option<UserPermit> {
        let of_user = self.semaphore_of(user).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.global).try_acquire_owned().ok()?;
        Some(UserPermit { _user: of_user, _global: of_all })
    }

    fn semaphore_of(&self, user: &UserId) -> Arc<Semaphore> {
        let mut users = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        Arc::clone(users.entry(user.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.per_user_max))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::pin::pin;

    #[tokio::test]
    async fn one_user_leaves_permits_for_others() {
        let permits = UserSemaphore::new(4, 3);
        let (greedy, modest) = (UserId::from("a"), UserId::from("b"));
        let now = Duration::ZERO;
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(permits.acquire(&greedy, now).await.unwrap());
        }
        let mut fourth = pin!(permits.acquire(&greedy, now));
        assert!(fourth.as_mut().now_or_never().is_none(), "a user who holds three waits for one of them");
        assert!(permits.try_acquire(&greedy).is_none());
        let last = permits.acquire(&modest, now).await.unwrap();
        assert!(permits.acquire(&modest, now).await.is_none(), "there are only four");
        assert!(permits.try_acquire(&modest).is_none());
        drop(taken.pop());
        assert!(fourth.await.is_some(), "the wait for one's own permits has no limit");
        assert!(permits.acquire(&modest, now).await.is_some());
        assert!(permits.try_acquire(&modest).is_some());
        drop((taken, last));
        let _only = permits.acquire(&modest, now).await.unwrap();
        assert_eq!(permits.by_user.lock().unwrap().len(), 1, "users without a permit are forgotten");
    }
}
