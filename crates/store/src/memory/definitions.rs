//! Definitions by digest.

use super::MemoryStore;
use model::ports::{DefinitionStore, DefinitionWriter, StoreFuture};

impl DefinitionStore for MemoryStore {
    fn definitions<'a>(&'a self, digest: &'a str) -> StoreFuture<'a, Option<String>> {
        Box::pin(async move { Ok(self.lock_tables().definitions.get(digest).cloned()) })
    }
}

impl DefinitionWriter for MemoryStore {
    fn put_definitions<'a>(&'a self, digest: &'a str, body: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.lock_tables().definitions.entry(digest.to_owned()).or_insert_with(|| body.to_owned());
            Ok(())
        })
    }
}
