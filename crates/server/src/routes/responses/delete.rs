//! `DELETE /v1/responses/{id}`: hides a response. Its thread keeps the log.

use super::ResponsePath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use gateway::responses::delete_response;
use serde_json::json;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
) -> Result<Response, Problem> {
    delete_response(&app.gateway, &caller.user, &id).await?;
    Ok(axum::Json(json!({ "id": id, "object": "response", "deleted": true })).into_response())
}
