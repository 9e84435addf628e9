//! Stored definitions of agents and tools.

use super::StoreResult;
use async_trait::async_trait;

/// The definitions that runs started with, by digest.
///
/// A body is stored once under its digest and never changes, so that a run that pauses today can resume with its own
/// definitions after the operator has changed them.
#[warn(missing_docs)]
#[async_trait]
pub trait DefinitionStore: Send + Sync {
    /// The definitions with this digest.
    async fn definitions(&self, digest: &str) -> StoreResult<Option<String>>;
}

/// Stores definitions. The law is [`DefinitionStore`]'s.
#[warn(missing_docs)]
#[async_trait]
pub trait DefinitionWriter: Send + Sync {
    /// Stores definitions under their digest. Does nothing when the digest is known.
    async fn put_definitions(&self, digest: &str, body: &str) -> StoreResult<()>;
}
