//! `GET /metrics`: Prometheus text, for this machine only, because load figures are confidential. A proxy on the same
//! machine can expose them.

use crate::app::App;
use crate::listen::PeerAddr;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

pub(crate) async fn handle(
    State(app): State<App>,
    Extension(peer): Extension<PeerAddr>,
) -> Result<impl IntoResponse, Problem> {
    if !peer.0.ip().to_canonical().is_loopback() {
        return Err(Problem::not_found());
    }
    let stats = app.store.stats();
    metrics::counter!("headwater_store_commits_total").absolute(stats.commits);
    metrics::counter!("headwater_store_records_total").absolute(stats.records);
    metrics::counter!("headwater_store_bytes_total").absolute(stats.bytes);
    metrics::counter!("headwater_store_blocks_total").absolute(stats.blocks);
    metrics::counter!("headwater_store_failures_total").absolute(stats.failures);
    app.metrics.run_upkeep();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render()))
}
