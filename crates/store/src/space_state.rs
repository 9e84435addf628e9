//! The state behind [`SpaceWatch`](model::ports::SpaceWatch).

use model::ports::{BoxFuture, StorageSpace};
use std::future::pending;
use tokio::sync::watch;

#[derive(Debug, Default)]
pub struct SpaceState(watch::Sender<StorageSpace>);

impl SpaceState {
    pub fn get(&self) -> StorageSpace {
        *self.0.borrow()
    }

    pub fn is_full(&self) -> bool {
        self.get() == StorageSpace::Full
    }

    /// Returns whether this changed the state.
    pub fn set(&self, space: StorageSpace) -> bool {
        self.0.send_if_modified(|now| std::mem::replace(now, space) != space)
    }

    pub fn changed_from(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        let mut states = self.0.subscribe();
        Box::pin(async move {
            if states.wait_for(|now| *now != known).await.is_err() {
                // The store is gone, and its last state stays.
                pending::<()>().await;
            }
        })
    }
}
