//! Stored definitions of agents and tools.

use super::StoreFuture;

/// The definitions that runs started with, by digest.
///
/// A body is stored once under its digest and never changes, so that a run that pauses today can resume with its own
/// definitions after the operator has changed them.
#[warn(missing_docs)]
pub trait DefinitionStore: Send + Sync {
    /// The definitions with this digest.
    fn definitions<'a>(&'a self, digest: &'a str) -> StoreFuture<'a, Option<String>>;
}

/// Stores definitions. The law is [`DefinitionStore`]'s.
#[warn(missing_docs)]
pub trait DefinitionWriter: Send + Sync {
    /// Stores definitions under their digest. Does nothing when the digest is known.
    fn put_definitions<'a>(&'a self, digest: &'a str, body: &'a str) -> StoreFuture<'a, ()>;
}
