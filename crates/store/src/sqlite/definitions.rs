//! Definitions by digest.

use super::SqliteStore;
use super::columns::get_text;
use super::write_task::TaskCost;
use async_trait::async_trait;
use model::ports::{DefinitionStore, DefinitionWriter, StoreResult};
use rusqlite::OptionalExtension;

#[async_trait]
impl DefinitionStore for SqliteStore {
    async fn definitions(&self, digest: &str) -> StoreResult<Option<String>> {
        let digest = digest.to_owned();
        self.query(move |conn| {
            let mut select = conn.prepare_cached("SELECT body FROM definitions WHERE digest = ?1")?;
            select.query_row([digest], |row| get_text(row, 0)).optional()
        })
        .await
    }
}

#[async_trait]
impl DefinitionWriter for SqliteStore {
    async fn put_definitions(&self, digest: &str, body: &str) -> StoreResult<()> {
        let (digest, body) = (digest.to_owned(), body.to_owned());
        // A server starts with its definitions, also on a full disk.
        self.call_writer(TaskCost::Relief, move |tx| {
            let mut insert = tx.conn.prepare_cached("INSERT OR IGNORE INTO definitions VALUES (?1, ?2)")?;
            insert.execute((digest, body))?;
            Ok(Ok(()))
        })
        .await
    }
}
