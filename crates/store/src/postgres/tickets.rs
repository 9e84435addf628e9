//! Tickets: credentials for one request, on any node.

use super::PostgresStore;
use super::connection::{Params, column, u64_column};
use model::UserId;
use model::ports::StoreResult;
use model::seq::Millis;
use tokio_postgres::types::Type;

impl PostgresStore {
    /// Stores a ticket, unless its user has `unused_max` that are not redeemed. Returns whether it was stored.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub async fn put_ticket(&self, ticket: &StoredTicket, now: Millis, unused_max: usize) -> StoreResult<bool> {
        let sql = "SELECT count(*) FROM headwater.tickets WHERE owner = $1 AND expires_at > $2";
        let params: Params<'_> = &[(&ticket.user.as_str(), Type::TEXT), (&now.cast_signed(), Type::INT8)];
        let unused = self.pool.query_opt(sql, params).await?.map_or(Ok(0), |row| u64_column(&row, 0))?;
        if unused >= unused_max as u64 {
            return Ok(false);
        }
        let sql = "WITH expired AS (DELETE FROM headwater.tickets WHERE expires_at <= $4)
                   INSERT INTO headwater.tickets VALUES ($1, $2, $3, $5)";
        let params: Params<'_> = &[
            (&ticket.digest, Type::TEXT),
            (&ticket.user.as_str(), Type::TEXT),
            (&ticket.credential, Type::TEXT),
            (&now.cast_signed(), Type::INT8),
            (&ticket.expires_at.cast_signed(), Type::INT8),
        ];
        self.pool.execute(sql, params).await.map(|_| true)
    }

    /// Takes a ticket that has not expired: of several callers one gets it.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub async fn take_ticket(&self, digest: &str, now: Millis) -> StoreResult<Option<(UserId, String)>> {
        let sql = "DELETE FROM headwater.tickets WHERE digest = $1 RETURNING owner, credential, expires_at > $2";
        let params: Params<'_> = &[(&digest, Type::TEXT), (&now.cast_signed(), Type::INT8)];
        let Some(row) = self.pool.query_opt(sql, params).await? else { return Ok(None) };
        let ticket = (UserId::from(column::<&str>(&row, 0)?), column(&row, 1)?);
        Ok(column::<bool>(&row, 2)?.then_some(ticket))
    }
}

/// A ticket as it is stored: with the digest of its text.
#[derive(Clone, Debug)]
pub struct StoredTicket {
    pub digest: String,
    pub user: UserId,
    /// The credential that it was issued for.
    pub credential: String,
    pub expires_at: Millis,
}
