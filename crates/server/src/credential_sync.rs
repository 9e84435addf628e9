//! Keeps the tables of keys and shares in memory as the database has them, which other nodes change, too.
//!
//! A change is noticed by a signal, or by polling, after at most a second. A credential that is unknown here may have been
//! created a moment ago on another node: before it is refused, the tables are read again.

use crate::api_keys::ApiKeys;
use crate::storage_backend::StorageBackend;
use gateway::Gateway;
use gateway::shares::Shares;
use model::ports::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The least time between two reads for unknown credentials: a client that sends many of them waits.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct CredentialSync {
    store: Arc<dyn StorageBackend>,
    keys: Option<Arc<ApiKeys>>,
    shares: Arc<Shares>,
    /// When the tables were last read.
    read_at: Mutex<Option<Instant>>,
}

impl CredentialSync {
    pub(crate) fn new(store: Arc<dyn StorageBackend>, keys: Option<Arc<ApiKeys>>, shares: Arc<Shares>) -> Self {
        Self { store, keys, shares, read_at: Mutex::new(None) }
    }

    /// Reads the tables, unless that was done after this call began.
    pub(crate) async fn look_again(&self) {
        let asked_at = Instant::now();
        let mut read_at = self.read_at.lock().await;
        if read_at.is_some_and(|read_at| read_at >= asked_at) {
            return;
        }
        if let Some(read_at) = *read_at {
            tokio::time::sleep_until(read_at + LOOKUP_INTERVAL).await;
        }
        *read_at = Some(Instant::now());
        if let Err(error) = self.read_tables().await {
            tracing::warn!(%error, "keys and shares cannot be read now");
        }
    }

    async fn read_tables(&self) -> Result<(), StoreError> {
        if let Some(keys) = &self.keys {
            keys.refresh(&*self.store).await?;
        }
        self.shares.refresh(&*self.store).await
    }

    /// Follows the changes of other nodes for as long as the server runs.
    pub(crate) async fn run(self: Arc<Self>, gateway: Gateway) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = gateway.engine.credentials_changed() => {}
            }
            self.look_again().await;
        }
    }
}
