//! How much one user may ask for, and how often an address may send invalid keys.

use crate::rate_limiter::RateLimiter;
use crate::rejection::Rejection;
use crate::stream_limiter::{CountedPermit, UserCounter};
use model::UserId;
use model::error::ErrorCode;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// A client with a wrong key in its settings sends fewer; keys cannot be guessed, but each attempt costs a little.
const INVALID_KEYS_PER_MINUTE: u32 = 60;

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
    pub fn admit(&self, user: &UserId) -> Result<CountedPermit, Rejection> {
        self.count(user)?;
        let too_many = "too many requests of yours are being received or handled: try again";
        self.in_flight.try_acquire(user).ok_or_else(|| Rejection::new(ErrorCode::TooManyRequests, too_many))
    }

    /// Counts a request, or a message of a socket.
    pub fn count(&self, user: &UserId) -> Result<(), Rejection> {
        self.per_minute.take(user, Instant::now()).map_err(|_| {
            let detail = format!("{} requests per minute are the maximum: try again", self.per_minute.per_minute());
            Rejection::new(ErrorCode::TooManyRequests, detail)
        })
    }

    /// Counts a request with an invalid key. Requests with one are not affected.
    pub fn count_invalid_key(&self, address: IpAddr) -> Result<(), Rejection> {
        let too_many = "too many invalid keys come from this address: correct the key and try again";
        let counted = self.invalid_keys.take(&address, Instant::now());
        counted.map_err(|_| Rejection::new(ErrorCode::TooManyRequests, too_many))
    }
}
