//! `POST /v1/responses/{id}/cancel`: cancels the run of a response. One that has ended stays as it is.

use super::ResponsePath;
use crate::app::App;
use crate::auth::Caller;
use crate::json_response::json_response_with_images;
use crate::problem::Problem;
use axum::extract::State;
use axum::response::Response;
use gateway::responses::{cancel_response, find_any_response};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
) -> Result<Response, Problem> {
    let end = cancel_response(&app.gateway, &caller.user, &id).await?;
    app.check_stream_end(end)?;
    let (response, snapshot) = find_any_response(&app.gateway, &caller.user, &id).await?;
    Ok(json_response_with_images(&app, &caller.user, &response.run.thread, snapshot.object_json()))
}
