//! Secrets of users, which the store keeps and cannot read.

use super::StoreResult;
use crate::id::UserId;
use crate::seq::Millis;
use async_trait::async_trait;
use std::fmt;

/// Sealed values of users, such as tokens for other services. The writer of a value has encrypted it. No viewer of a share
/// reaches these operations, so they are not part of [`super::Directory`].
///
/// 1. A value is found by its owner, kind and name; for another owner it does not exist.
/// 2. Every write gives the value a version that no value had before. [`UserSecrets::replace_secret`] writes only if the version
///    is the one that the caller has read.
/// 3. A claim is granted to one caller, until its time is over or the value is written again. It keeps nobody from reading or
///    writing; it says who asks another service for the next value.
/// 4. A value that is taken is deleted: of several callers one gets it.
/// 5. An expired value does not exist.
/// 6. An owner has at most as many values of a kind as the newest write allows; the oldest ones make room.
#[warn(missing_docs)]
#[async_trait]
pub trait UserSecrets: Send + Sync {
    /// A value.
    async fn secret(&self, key: &SecretKey, now: Millis) -> StoreResult<Option<StoredSecret>>;

    /// All values of an owner, by kind and name.
    async fn secrets(&self, owner: &UserId, now: Millis) -> StoreResult<Vec<StoredSecret>>;

    /// Writes a value, whatever was there, and returns its version.
    async fn put_secret(&self, secret: NewSecret) -> StoreResult<u64>;

    /// Writes a value if its version is still this one. Returns false when it is not, or there is none.
    async fn replace_secret(&self, version: u64, secret: NewSecret) -> StoreResult<bool>;

    /// Claims a version until this time. Returns false when another caller holds it, or the version is not the newest.
    async fn claim_secret(&self, key: &SecretKey, version: u64, now: Millis, until: Millis) -> StoreResult<bool>;

    /// Deletes the value of this kind and name, of any owner, and returns it. For names that cannot be guessed.
    async fn take_secret(&self, kind: SecretKind, name: &str, now: Millis) -> StoreResult<Option<StoredSecret>>;

    /// Deletes a value. Returns false when there is none.
    async fn delete_secret(&self, key: &SecretKey) -> StoreResult<bool>;

    /// Deletes all values of an owner and returns their number.
    async fn delete_secrets(&self, owner: &UserId) -> StoreResult<u64>;
}

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretKind {
    /// An authorization of an MCP server that is not complete. Named by the digest of its state.
    McpAuthorization,
    /// What an authorization server knows this server as.
    McpClient,
    /// Tokens for an MCP server. Named like the server.
    McpToken,
}

impl SecretKind {
    /// All of them, in the order of their names.
    pub const ALL: [Self; 3] = [Self::McpAuthorization, Self::McpClient, Self::McpToken];

    /// The name in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::McpAuthorization => "mcp_authorization",
            Self::McpClient => "mcp_client",
            Self::McpToken => "mcp_token",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Where a value is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretKey {
    pub owner: UserId,
    pub kind: SecretKind,
    pub name: String,
}

/// A value to write.
#[derive(Clone, PartialEq, Eq)]
pub struct NewSecret {
    pub key: SecretKey,
    pub body: Vec<u8>,
    pub at: Millis,
    pub expires_at: Option<Millis>,
    /// How many values of this kind the owner may have, this one included.
    pub count_max: usize,
}

/// A value that was written.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSecret {
    pub key: SecretKey,
    pub version: u64,
    pub body: Vec<u8>,
    pub updated_at: Millis,
    pub expires_at: Option<Millis>,
}

impl StoredSecret {
    /// Whether the value exists at `now`.
    #[must_use]
    pub fn is_current(&self, now: Millis) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSecret").field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSecret").field("key", &self.key).field("version", &self.version).finish_non_exhaustive()
    }
}
