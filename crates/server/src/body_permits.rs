//! Bounds the memory of large request bodies and WebSocket messages.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A larger body needs a permit.
pub(crate) const LARGE_BODY_BYTES: usize = 1024 * 1024;

/// Permits for large bodies. A body holds one from its second mebibyte until its content is stored.
#[derive(Clone, Debug)]
pub(crate) struct LargeBodySemaphore {
    permits: Arc<Semaphore>,
}

pub(crate) type BodyPermit = OwnedSemaphorePermit;

impl LargeBodySemaphore {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))) }
    }

    /// `None` if the semaphore is closed.
    pub(crate) async fn acquire(self) -> Option<BodyPermit> {
        self.permits.acquire_owned().await.ok()
    }

    /// `None` if all permits are taken.
    pub(crate) fn try_acquire(&self) -> Option<BodyPermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }
}
