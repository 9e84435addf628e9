//! Definitions by digest.

use super::SqliteStore;
use super::columns::get_text;
use super::write_task::TaskCost;
use model::ports::{DefinitionStore, DefinitionWriter, StoreFuture};
use rusqlite::OptionalExtension;

impl DefinitionStore for SqliteStore {
    fn definitions<'a>(&'a self, digest: &'a str) -> StoreFuture<'a, Option<String>> {
        let digest = digest.to_owned();
        Box::pin(self.readers.query(move |conn| {
            let mut select = conn.prepare_cached("SELECT body FROM definitions WHERE digest = ?1")?;
            select.query_row([digest], |row| get_text(row, 0)).optional()
        }))
    }
}

impl DefinitionWriter for SqliteStore {
    fn put_definitions<'a>(&'a self, digest: &'a str, body: &'a str) -> StoreFuture<'a, ()> {
        let (digest, body) = (digest.to_owned(), body.to_owned());
        Box::pin(self.call_writer(TaskCost::row_with_text(&body), move |tx| {
            let mut insert = tx.conn.prepare_cached("INSERT OR IGNORE INTO definitions VALUES (?1, ?2)")?;
            insert.execute((digest, body))?;
            Ok(Ok(()))
        }))
    }
}
