//! `GET /metrics`: Prometheus text. Load figures are confidential, so they are for this machine, and for others with the
//! token of `[metrics]`.

use crate::app::App;
use crate::listen::PeerAddr;
use crate::middleware::bearer_token;
use crate::origin_policy::is_loopback_authority;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::IntoResponse;
use gateway::secret_token::secret_digest;
use model::error::ErrorCode;
use model::ports::StorageSpace;

pub(crate) async fn handle(
    State(app): State<App>,
    Extension(peer): Extension<PeerAddr>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    if !is_from_this_machine(peer, &headers) {
        check_token(app.metrics_token_digest.as_deref(), &headers)?;
    }
    let stats = app.store.stats();
    metrics::counter!("headwater_store_commits_total").absolute(stats.commits);
    metrics::counter!("headwater_store_records_total").absolute(stats.records);
    metrics::counter!("headwater_store_bytes_total").absolute(stats.bytes);
    metrics::counter!("headwater_store_blocks_total").absolute(stats.blocks);
    metrics::counter!("headwater_store_failures_total").absolute(stats.failures);
    if let Some(stats) = app.store.archive_stats() {
        metrics::counter!("headwater_archived_runs_total").absolute(stats.runs);
        metrics::counter!("headwater_archived_bytes_total").absolute(stats.record_bytes);
        metrics::counter!("headwater_archive_reads_total").absolute(stats.reads);
        metrics::counter!("headwater_archive_failures_total").absolute(stats.failures);
    }
    if let Ok(used) = app.store.storage_use().await {
        metrics::gauge!("headwater_log_bytes").set(gauge_value(used.log_bytes));
        metrics::gauge!("headwater_file_bytes").set(gauge_value(used.file_bytes));
    }
    let is_full = app.store.space() == StorageSpace::Full;
    metrics::gauge!("headwater_storage_full").set(if is_full { 1.0 } else { 0.0 });
    app.metrics.run_upkeep();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render()))
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
const fn gauge_value(bytes: u64) -> f64 {
    bytes as f64
}

/// A reverse proxy on this machine connects from a loopback address, too, but on behalf of others: it says so in a header,
/// or sends the host name that they used.
fn is_from_this_machine(peer: PeerAddr, headers: &HeaderMap) -> bool {
    let is_of_proxy = |name: &HeaderName| {
        matches!(name.as_str(), "forwarded" | "via" | "x-real-ip") || name.as_str().starts_with("x-forwarded-")
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    peer.0.ip().to_canonical().is_loopback()
        && host.is_some_and(is_loopback_authority)
        && !headers.keys().any(is_of_proxy)
}

/// Without a token in the config the route does not exist for others. Compared by digest, so that timing reveals nothing.
fn check_token(digest: Option<&str>, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(digest) = digest else { return Err(Problem::not_found()) };
    let unauthorized = |detail, challenge: &str| {
        Err(Problem::new(ErrorCode::Unauthorized, detail).with_header(header::WWW_AUTHENTICATE, challenge))
    };
    match headers.get(header::AUTHORIZATION).map(bearer_token) {
        Some(Some(token)) if secret_digest(token) == digest => Ok(()),
        None => unauthorized("the token of [metrics] is required: send `Authorization: Bearer …`", "Bearer"),
        Some(_) => unauthorized("this is not the token of [metrics]", "Bearer error=\"invalid_token\""),
    }
}
