//! How much one user may ask for, and how often an address may send invalid keys.

use crate::rate_limiter::RateLimiter;
use crate::rejection::Rejection;
use crate::shared_allowance::SharedAllowance;
use crate::stream_limiter::{CountedPermit, UserCounter};
use heavy_work::{UserPermit, UserSemaphore};
use model::UserId;
use model::error::ErrorCode;
use model::ports::Cluster;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// A client with a wrong key in its settings sends fewer; keys cannot be guessed, but each attempt costs a little.
const INVALID_KEYS_PER_MINUTE: u32 = 60;

/// A client that ignores a refusal and asks again at once costs little this way, and who obeys `Retry-After` waits longer
/// anyway.
const REFUSAL_DELAY: Duration = Duration::from_millis(200);

/// A request that takes longer waits for something else than a processor: its client, a model, the end of a run.
const TURN_MAX: Duration = Duration::from_millis(20);
/// The number of turns of all users has no limit of its own.
const TURNS_MAX: usize = 1 << 16;

pub struct RequestLimits {
    in_flight: Arc<UserCounter>,
    /// As many requests of one user as there are processors are handled at once; the others wait where they cost nothing, so
    /// that they do not stand before those of other users. `None` if everybody is the same user.
    turns: Option<UserSemaphore>,
    /// On this node, and on all nodes together.
    per_minute: RateLimiter<UserId>,
    shared_per_minute: SharedAllowance,
    invalid_keys: RateLimiter<IpAddr>,
}

impl RequestLimits {
    /// A `per_minute` of 0 is no limit.
    pub fn new(in_flight_max: usize, per_minute: u32, has_users: bool, cluster: Arc<dyn Cluster>) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            in_flight: UserCounter::new(in_flight_max),
            turns: has_users.then(|| UserSemaphore::new(TURNS_MAX, processors)),
            per_minute: RateLimiter::new(per_minute),
            shared_per_minute: SharedAllowance::new(cluster, per_minute),
            invalid_keys: RateLimiter::new(INVALID_KEYS_PER_MINUTE),
        }
    }

    /// Admits a request, which is in flight until the permit is dropped.
    ///
    /// # Errors
    /// If the user has too many, after [`REFUSAL_DELAY`].
    pub async fn admit(&self, user: &UserId) -> Result<CountedPermit, Rejection> {
        self.count(user).await?;
        match self.in_flight.try_acquire(user) {
            Some(permit) => Ok(permit),
            None => refuse("too many requests of yours are being received or handled: try again").await,
        }
    }

    /// Handles a request when it is its user's turn.
    pub async fn handle_in_turn<T>(&self, user: &UserId, handling: impl Future<Output = T>) -> T {
        let Some(turns) = &self.turns else { return handling.await };
        let turn: Option<UserPermit> = turns.acquire_in_turn(user).await;
        let mut handling = pin!(handling);
        match timeout(TURN_MAX, handling.as_mut()).await {
            Ok(handled) => handled,
            Err(_) => {
                drop(turn);
                handling.await
            }
        }
    }

    /// Counts a request, or a message of a socket.
    ///
    /// # Errors
    /// If the user sends too many, after [`REFUSAL_DELAY`].
    pub async fn count(&self, user: &UserId) -> Result<(), Rejection> {
        let now = Instant::now();
        if self.per_minute.take(user, now).is_ok() && self.shared_per_minute.take(user, now).await {
            return Ok(());
        }
        refuse(format!("{} requests per minute are the maximum: try again", self.per_minute.per_minute())).await
    }

    /// Counts a request with an invalid key. Requests with a valid one are not affected.
    ///
    /// # Errors
    /// If the address sends too many, after [`REFUSAL_DELAY`].
    pub async fn count_invalid_key(&self, address: IpAddr) -> Result<(), Rejection> {
        if self.invalid_keys.take(&address, Instant::now()).is_ok() {
            return Ok(());
        }
        refuse("too many invalid keys come from this address: correct the key and try again").await
    }
}

async fn refuse<T>(detail: impl Into<String>) -> Result<T, Rejection> {
    tokio::time::sleep(REFUSAL_DELAY).await;
    Err(Rejection::new(ErrorCode::TooManyRequests, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ports::SingleNode;
    use std::future::pending;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    /// Polls until nothing moves any more without the clock.
    async fn settle() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_one_user_wait_for_their_turn_and_not_for_slow_ones() {
        let limits = Arc::new(RequestLimits::new(1_000, 0, true, Arc::new(SingleNode)));
        let (ann, ben) = (UserId::from("ann"), UserId::from("ben"));
        let processors = available_parallelism().map_or(1, usize::from);
        let slow: Vec<_> = (0..processors)
            .map(|_| {
                let (limits, ann) = (Arc::clone(&limits), ann.clone());
                tokio::spawn(async move { limits.handle_in_turn(&ann, pending::<()>()).await })
            })
            .collect();
        settle().await;
        let (done, mut is_done) = oneshot::channel();
        let next = tokio::spawn({
            let (limits, ann) = (Arc::clone(&limits), ann.clone());
            async move { limits.handle_in_turn(&ann, async { done.send(()) }).await }
        });
        settle().await;
        assert!(is_done.try_recv().is_err(), "all turns of the user are taken");
        limits.handle_in_turn(&ben, async {}).await;
        // Only time can release a turn here: requests that wait for something else give it up.
        assert_eq!(next.await.unwrap(), Ok(()));
        assert!(is_done.try_recv().is_ok());
        slow.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test(start_paused = true)]
    async fn without_users_nobody_waits() {
        let limits = RequestLimits::new(1_000, 0, false, Arc::new(SingleNode));
        let user = UserId::from("local");
        let endless: Vec<_> = (0..100).map(|_| Box::pin(limits.handle_in_turn(&user, pending::<()>()))).collect();
        for mut request in endless {
            assert!(futures_util::poll!(request.as_mut()).is_pending());
            limits.handle_in_turn(&user, async {}).await;
        }
    }
}
