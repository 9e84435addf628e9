//! `POST /agui/{agent}`: starts a run, answers its interrupts, or continues a thread, and streams the run until it pauses or
//! ends.

use super::{AgUiBody, LateAnswer, stream_run};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::routes::AgentPath;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = AgUiBody::read(&app, &caller, &headers, body).await?;
    stream_run(&app, &caller, &headers, &agent, body, LateAnswer::Refused).await
}
