//! Definitions by digest.

use crate::MemoryStore;
use async_trait::async_trait;
use model::ports::{DefinitionStore, DefinitionWriter, StoreResult};

#[async_trait]
impl DefinitionStore for MemoryStore {
    async fn definitions(&self, digest: &str) -> StoreResult<Option<String>> {
        Ok(self.lock_tables().definitions.get(digest).cloned())
    }
}

#[async_trait]
impl DefinitionWriter for MemoryStore {
    async fn put_definitions(&self, digest: &str, body: &str) -> StoreResult<()> {
        self.lock_tables().definitions.entry(digest.to_owned()).or_insert_with(|| body.to_owned());
        Ok(())
    }
}
