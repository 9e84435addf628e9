//! The memory of request bodies and socket messages, counted from the first byte, per user and in all.
//!
//! A body reserves memory as it grows and holds it until its content is stored, so what a client announces or delays costs
//! nothing. Three limits apply: bytes in all, bytes of one user, and the number of large bodies in all and of one user.
//! The last eighth of all bytes is for bodies of up to [`SMALL_BODY_BYTES`]: large ones cannot lock them out.

use heavy_work::{UserPermit, UserSemaphore};
use model::UserId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// A body above this size is large, and needs a place.
pub const LARGE_BODY_BYTES: usize = 1024 * 1024;
/// Bodies of up to this size may use all memory.
pub const SMALL_BODY_BYTES: usize = 64 * 1024;
/// Small bodies have an eighth of the bytes to themselves.
const SMALL_BODIES_SHARE: usize = 8;
/// By default a user has at most a quarter of the bytes and of the places for large bodies.
pub const USER_SHARE: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Bytes of all bodies.
    pub bytes_max: usize,
    /// Bytes of one user's bodies.
    pub user_bytes_max: usize,
    /// Number of large bodies.
    pub large_max: usize,
    /// Number of one user's large bodies.
    pub user_large_max: usize,
}

/// Which limit has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyBudgetError {
    #[error(
        "your other requests use the memory that one user may have for bodies: try again when they have been received"
    )]
    User,
    #[error("the server is receiving too much: try again")]
    All,
    #[error("too many large bodies are being received: try again")]
    LargeBodies,
}

pub struct BodyBudget {
    limits: BodyLimits,
    usage: Mutex<Usage>,
    large_bodies: Arc<UserSemaphore>,
    released: Arc<Notify>,
}

#[derive(Default)]
struct Usage {
    all: usize,
    by_user: HashMap<UserId, usize>,
}

impl BodyBudget {
    pub fn new(limits: BodyLimits) -> Arc<Self> {
        let large_bodies = Arc::new(UserSemaphore::new(limits.large_max, limits.user_large_max));
        Arc::new(Self { limits, usage: Mutex::default(), large_bodies, released: Arc::default() })
    }

    /// A body without a byte yet.
    pub fn reserve(self: &Arc<Self>, user: &UserId) -> BodyReservation {
        BodyReservation { budget: Arc::clone(self), user: user.clone(), bytes: 0, large: None }
    }

    /// Completes when memory has been released after this call.
    pub fn released(&self) -> OwnedNotified {
        Arc::clone(&self.released).notified_owned()
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of one body, until it is dropped.
pub struct BodyReservation {
    budget: Arc<BodyBudget>,
    user: UserId,
    bytes: usize,
    large: Option<UserPermit>,
}

impl BodyReservation {
    /// Reserves `bytes` in total. On an error the reservation is unchanged.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), BodyBudgetError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        if bytes > LARGE_BODY_BYTES {
            self.try_take_place()?;
        }
        let limits = &self.budget.limits;
        let for_small = if bytes > SMALL_BODY_BYTES { limits.bytes_max / SMALL_BODIES_SHARE } else { 0 };
        let mut usage = self.budget.lock();
        let added = bytes - self.bytes;
        let of_user = usage.by_user.get(&self.user).copied().unwrap_or_default() + added;
        if of_user > limits.user_bytes_max {
            return Err(BodyBudgetError::User);
        }
        if usage.all + added > limits.bytes_max - for_small {
            return Err(BodyBudgetError::All);
        }
        usage.all += added;
        usage.by_user.insert(self.user.clone(), of_user);
        drop(usage);
        self.bytes = bytes;
        Ok(())
    }

    /// Takes the place of a large body, if one is free now.
    pub fn try_take_place(&mut self) -> Result<(), BodyBudgetError> {
        if self.large.is_none() {
            let place = self.budget.large_bodies.try_acquire(&self.user);
            self.large = Some(place.ok_or(BodyBudgetError::LargeBodies)?);
        }
        Ok(())
    }

    /// Waits for the place of a large body; [`BodyReservation::set_place`] takes it.
    pub fn wait_for_place(&self) -> impl Future<Output = Option<UserPermit>> + Send + 'static {
        let (large_bodies, user) = (Arc::clone(&self.budget.large_bodies), self.user.clone());
        async move { large_bodies.acquire(&user, WAIT_MAX).await }
    }

    pub fn set_place(&mut self, place: UserPermit) {
        self.large = Some(place);
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub const fn has_place(&self) -> bool {
        self.large.is_some()
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut usage = self.budget.lock();
        usage.all -= self.bytes;
        if let Some(of_user) = usage.by_user.get_mut(&self.user) {
            *of_user -= self.bytes;
            if *of_user == 0 {
                usage.by_user.remove(&self.user);
            }
        }
        drop(usage);
        self.budget.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const MIB: usize = 1024 * 1024;

    fn budget() -> Arc<BodyBudget> {
        BodyBudget::new(BodyLimits { bytes_max: 8 * MIB, user_bytes_max: 4 * MIB, large_max: 3, user_large_max: 2 })
    }

    #[test]
    fn a_user_and_all_users_have_a_limit_and_small_bodies_a_reserve() {
        let budget = budget();
        let [ann, ben, eve] = ["ann", "ben", "eve"].map(UserId::from);
        let mut bodies = Vec::new();
        for user in [&ann, &ben] {
            let mut body = budget.reserve(user);
            body.grow_to(MIB).unwrap();
            body.grow_to(3 * MIB + 1).unwrap();
            assert_eq!(body.grow_to(5 * MIB), Err(BodyBudgetError::User), "of which it has none");
            bodies.push(body);
        }
        let mut small = budget.reserve(&eve);
        assert_eq!(small.grow_to(MIB), Err(BodyBudgetError::All), "the last eighth is for small ones");
        small.grow_to(SMALL_BODY_BYTES).unwrap();
        let mut released = std::pin::pin!(budget.released());
        assert!(released.as_mut().now_or_never().is_none());
        bodies.clear();
        assert!(released.now_or_never().is_some(), "who waits is told");
        small.grow_to(MIB).unwrap();
        drop(small);
        assert_eq!(budget.lock().all, 0);
        assert!(budget.lock().by_user.is_empty(), "nobody who left is remembered");
    }

    #[tokio::test]
    async fn large_bodies_of_one_user_leave_places_for_others() {
        let budget = budget();
        let [ann, ben] = ["ann", "ben"].map(UserId::from);
        let large = |user: &UserId| {
            let mut body = budget.reserve(user);
            body.grow_to(MIB + 1).map(|()| body)
        };
        let (first, _second) = (large(&ann).unwrap(), large(&ann).unwrap());
        assert_eq!(large(&ann).err(), Some(BodyBudgetError::LargeBodies));
        let mut waiting = budget.reserve(&ann);
        let mut place = Box::pin(waiting.wait_for_place());
        assert!(place.as_mut().now_or_never().is_none());
        assert!(large(&ben).is_ok());
        drop(first);
        waiting.set_place(place.await.unwrap());
        assert!(waiting.has_place());
    }
}
