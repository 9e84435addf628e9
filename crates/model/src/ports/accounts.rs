//! Access keys and spending.

use super::StoreResult;
use crate::id::UserId;
use crate::limits::CostMicros;
use crate::seq::Millis;
use crate::usage::Usage;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// The access keys of all users, for authentication and for the operator. No user's request reaches these operations, so
/// they are not part of [`super::Directory`].
///
/// 1. A key's id is unique.
/// 2. A revoked key stays listed. Revoking is final; revoking again does not change the time.
#[warn(missing_docs)]
#[async_trait]
pub trait Accounts: Send + Sync {
    /// All keys, the oldest first, revoked ones included.
    async fn access_keys(&self) -> StoreResult<Vec<AccessKeyRow>>;

    /// Creates a key.
    async fn create_access_key(&self, key: AccessKeyRow) -> StoreResult<()>;

    /// Revokes a key. Returns false when there is no key with this id.
    async fn revoke_access_key(&self, id: &str, at: Millis) -> StoreResult<bool>;
}

/// Daily spending of users.
///
/// 1. Spending is added by appends ([`super::DirectoryChange::AddSpend`]), per user and day.
/// 2. It outlives the threads that caused it: a daily limit must hold for users who delete their threads.
/// 3. A sum that would overflow stays at its maximum.
#[warn(missing_docs)]
#[async_trait]
pub trait UsageLedger: Send + Sync {
    /// A user's spending on a day.
    async fn daily_spend(&self, owner: &UserId, day: Day) -> StoreResult<Spend>;
}

/// A UTC day, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(pub u32);

impl Day {
    /// The day that contains a point in time.
    pub fn from_millis(at: Millis) -> Self {
        Self(u32::try_from(at / (24 * 60 * 60 * 1000)).unwrap_or(u32::MAX))
    }
}

/// Tokens and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    pub usage: Usage,
    pub cost: CostMicros,
}

impl Spend {
    /// The sum of both. It saturates, because an overflow would reset the spending that a limit checks.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let mut usage = self.usage;
        usage.add(other.usage);
        Self { usage, cost: CostMicros(self.cost.0.saturating_add(other.cost.0)) }
    }
}

/// An access key. The store holds the digest of its secret, never the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKeyRow {
    /// The key's id. It is not a secret.
    pub id: String,
    pub user: UserId,
    pub digest: String,
    pub created_at: Millis,
    pub revoked_at: Option<Millis>,
}
