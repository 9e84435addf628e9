//! Definitions by digest.

use super::PostgresStore;
use super::connection::bytes_text_column;
use async_trait::async_trait;
use model::ports::{DefinitionStore, DefinitionWriter, StoreResult};
use tokio_postgres::types::Type;

#[async_trait]
impl DefinitionStore for PostgresStore {
    async fn definitions(&self, digest: &str) -> StoreResult<Option<String>> {
        let sql = "SELECT body FROM headwater.definitions WHERE digest = $1";
        let row = self.pool.query_opt(sql, &[(&digest, Type::TEXT)]).await?;
        row.map(|row| bytes_text_column(&row, 0)).transpose()
    }
}

#[async_trait]
impl DefinitionWriter for PostgresStore {
    async fn put_definitions(&self, digest: &str, body: &str) -> StoreResult<()> {
        let sql = "INSERT INTO headwater.definitions VALUES ($1, $2) ON CONFLICT DO NOTHING";
        self.pool.execute(sql, &[(&digest, Type::TEXT), (&body.as_bytes(), Type::BYTEA)]).await.map(drop)
    }
}
