//! `POST /agui/{agent}/connect`: a thread as it is, and its active run until it pauses or ends.

use super::{AgUiBody, connect};
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
    let AgUiBody { members, memory } = AgUiBody::read(&app, &caller, &headers, body).await?;
    let response = connect(&app, &caller, &agent, &members).await;
    drop(memory);
    response
}
