//! The part of a user's requests per minute that this node may admit without asking the other nodes.
//!
//! A node takes requests out of the common allowance in small portions, so that a user with many requests costs the store one
//! statement per portion. What a node has taken and not used is lost to the others for a minute at most.

use model::UserId;
use model::ports::Cluster;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A portion is what a user may send in this time. It is taken at most this often; requests in between take one each.
const PORTION_INTERVAL: Duration = Duration::from_secs(1);
const PORTIONS_PER_MINUTE: u32 = 60;
/// After this time a portion is void: the common allowance has grown by as much.
const PORTION_LIFETIME: Duration = Duration::from_secs(60);
/// Void portions are removed when the map has grown to this size, and then whenever it has doubled.
const PRUNE_USERS_MIN: usize = 1024;

pub(crate) struct SharedAllowance {
    cluster: Arc<dyn Cluster>,
    per_minute: u32,
    portions: Mutex<Portions>,
}

struct Portions {
    users: HashMap<UserId, Portion>,
    prune_at: usize,
}

struct Portion {
    left: u32,
    taken_at: Instant,
}

impl SharedAllowance {
    /// A `per_minute` of 0 is no limit.
    pub(crate) fn new(cluster: Arc<dyn Cluster>, per_minute: u32) -> Self {
        let portions = Portions { users: HashMap::new(), prune_at: PRUNE_USERS_MIN };
        Self { cluster, per_minute, portions: Mutex::new(portions) }
    }

    /// Counts one request; false if the user has sent too many to all nodes together.
    pub(crate) async fn take(&self, user: &UserId, now: Instant) -> bool {
        if self.per_minute == 0 || !self.cluster.is_shared() {
            return true;
        }
        let Some(missing) = self.take_from_portion(user, now) else { return true };
        if self.take_requests(user, missing).await {
            self.add_to_portion(user, missing - 1);
            return true;
        }
        // The last ones may be fewer than a portion.
        missing > 1 && self.take_requests(user, 1).await
    }

    /// While the store cannot be asked, the limit of this node is the only one.
    async fn take_requests(&self, user: &UserId, requests: u32) -> bool {
        self.cluster.take_requests(user, requests, self.per_minute).await.unwrap_or(true)
    }

    /// `None` if the user's portion had one left; else how many are to be taken out of the common allowance.
    fn take_from_portion(&self, user: &UserId, now: Instant) -> Option<u32> {
        let mut portions = self.portions.lock().unwrap_or_else(PoisonError::into_inner);
        portions.prune(now);
        match portions.users.get_mut(user) {
            Some(portion) if portion.left > 0 && portion.is_valid(now) => {
                portion.left -= 1;
                None
            }
            Some(portion) if now.saturating_duration_since(portion.taken_at) < PORTION_INTERVAL => Some(1),
            _ => {
                portions.users.insert(user.clone(), Portion { left: 0, taken_at: now });
                Some(self.per_minute.div_ceil(PORTIONS_PER_MINUTE))
            }
        }
    }

    fn add_to_portion(&self, user: &UserId, requests: u32) {
        let mut portions = self.portions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(portion) = portions.users.get_mut(user) {
            portion.left = portion.left.saturating_add(requests);
        }
    }
}

impl Portions {
    fn prune(&mut self, now: Instant) {
        if self.users.len() >= self.prune_at {
            self.users.retain(|_, portion| portion.is_valid(now));
            self.prune_at = (self.users.len() * 2).max(PRUNE_USERS_MIN);
        }
    }
}

impl Portion {
    fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.taken_at) < PORTION_LIFETIME
    }
}
