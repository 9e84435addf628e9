//! Creating and revoking shares.

use crate::context::Gateway;
use crate::native_json::ShareMode;
use crate::rejection::Rejection;
use crate::run_lookup::log_head;
use crate::run_to_completion::run_to_completion;
use crate::shares::NewShare;
use model::error::ErrorCode;
use model::ports::{ClusterSignal, ShareRow, StoreError};
use model::{ThreadId, UserId};

/// Forgotten links expire.
const LIFETIME_SECONDS_DEFAULT: u64 = 7 * 24 * 60 * 60;
const LIFETIME_SECONDS_MAX: u64 = 366 * 24 * 60 * 60;
/// Shares of one thread, revoked ones included.
const SHARES_MAX: usize = 1_000;

/// A share, and its token, which is stored nowhere.
pub struct CreatedShare {
    pub row: ShareRow,
    pub token: String,
}

pub async fn create_share(
    gateway: &Gateway,
    user: &UserId,
    thread: ThreadId,
    mode: ShareMode,
    lifetime_seconds: Option<u64>,
) -> Result<CreatedShare, Rejection> {
    let seconds = lifetime_seconds.unwrap_or(LIFETIME_SECONDS_DEFAULT);
    if !(1..=LIFETIME_SECONDS_MAX).contains(&seconds) {
        let reason = format!("must be a number from 1 to {LIFETIME_SECONDS_MAX}");
        return Err(Rejection::invalid_field("expires_in_seconds", reason));
    }
    let head = log_head(gateway, user, &thread).await?;
    let until_seq = match mode {
        ShareMode::Live => None,
        ShareMode::Frozen => Some(head),
    };
    let ports = gateway.engine.ports();
    if ports.directory.shares(user, &thread).await?.len() >= SHARES_MAX {
        let detail = format!("the thread has {SHARES_MAX} shares, which is the maximum");
        return Err(Rejection::new(ErrorCode::TooManyShares, detail));
    }
    let created_at = ports.clock.now();
    let expires_at = created_at.saturating_add(seconds * 1_000);
    let new = NewShare { owner: user.clone(), thread, until_seq, created_at, expires_at };
    let (row, token) = new.into_row()?;
    insert_share(gateway.clone(), row.clone()).await?;
    Ok(CreatedShare { row, token })
}

/// Inserts into the table before the store, so that a revocation right after the store's commit finds the share. Its
/// token has not been handed out yet.
async fn insert_share(gateway: Gateway, row: ShareRow) -> Result<(), Rejection> {
    run_to_completion(async move {
        let writer = gateway.engine.ports().directory.writer(&row.owner)?;
        gateway.shares.insert(row.clone());
        let created = writer.create_share(row.clone()).await;
        match &created {
            Ok(()) => gateway.shares.mark_stored(&row.id),
            Err(_) => gateway.shares.revoke(&row.id),
        }
        gateway.engine.ports().cluster.ring(ClusterSignal::Credentials);
        created
    })
    .await
}

pub async fn revoke_share(
    gateway: &Gateway,
    user: &UserId,
    thread: ThreadId,
    share_id: String,
) -> Result<(), Rejection> {
    let (gateway, user) = (gateway.clone(), user.clone());
    let revoked = run_to_completion(async move {
        let ports = gateway.engine.ports();
        let revoked = ports.directory.writer(&user)?.revoke_share(&user, &thread, &share_id, ports.clock.now()).await?;
        if revoked {
            gateway.shares.revoke(&share_id);
            ports.cluster.ring(ClusterSignal::Credentials);
        }
        Ok::<bool, StoreError>(revoked)
    });
    if revoked.await? { Ok(()) } else { Err(Rejection::not_found()) }
}
