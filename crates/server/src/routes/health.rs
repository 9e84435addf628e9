//! `GET /healthz`: liveness. `GET /readyz`: readiness.

use crate::app::App;
use crate::problem::Problem;
use axum::extract::State;

pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

pub(crate) async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    if app.is_shutting_down() {
        return Err(Problem::shutting_down());
    }
    app.gateway.check_storage()?;
    Ok("ready\n")
}
