//! Which threads are being resumed.

use super::StoreResult;
use crate::id::ThreadId;
use async_trait::async_trait;
use std::collections::BTreeMap;

/// A run that was resumed this often in vain fails: once together with others, then alone. If the process crashes even then,
/// the thread is parked.
pub const RESUMES_MAX: u32 = 3;

/// The threads that processes are resuming, each with how often resuming it alone has failed before.
///
/// 1. What was saved is durable, and outlives the process that saved it.
/// 2. Nodes that share a store see what nodes that have ended were resuming. What a node that lives is resuming does not
///    concern the others, except threads that are parked.
#[warn(missing_docs)]
#[async_trait]
pub trait RecoveryAttempts: Send + Sync {
    /// What processes that have ended were resuming, and the threads that any node has parked.
    async fn load(&self) -> StoreResult<BTreeMap<ThreadId, u32>>;

    /// Replaces what this process is resuming.
    async fn save(&self, attempts: &BTreeMap<ThreadId, u32>) -> StoreResult<()>;
}
