//! How much one user may ask for, and how often an address may send invalid keys.

use crate::rate_limiter::RateLimiter;
use crate::rejection::Rejection;
use crate::stream_limiter::{CountedPermit, UserCounter};
use model::UserId;
use model::error::ErrorCode;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client with a wrong key in its settings sends fewer; keys cannot be guessed, but each attempt costs a little.
const INVALID_KEYS_PER_MINUTE: u32 = 60;

/// A client that ignores a refusal and asks again at once costs little this way, and who obeys `Retry-After` waits longer
/// anyway.
const REFUSAL_DELAY: Duration = Duration::from_millis(200);

pub struct RequestLimits {
    in_flight: Arc<UserCounter>,
    per_minute: RateLimiter<UserId>,
    invalid_keys: RateLimiter<IpAddr>,
}

impl RequestLimits {
    /// A `per_minute` of 0 is no limit.
    pub fn new(in_flight_max: usize, per_minute: u32) -> Self {
        Self {
            in_flight: UserCounter::new(in_flight_max),
            per_minute: RateLimiter::new(per_minute),
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

    /// Counts a request, or a message of a socket.
    ///
    /// # Errors
    /// If the user sends too many, after [`REFUSAL_DELAY`].
    pub async fn count(&self, user: &UserId) -> Result<(), Rejection> {
        if self.per_minute.take(user, Instant::now()).is_ok() {
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
