//! `DELETE /v1/responses/{id}`: a response is no longer shown. Its thread keeps the log, and goes with it.

use super::{ResponsePath, find_response};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use model::ports::{AliasData, AliasRow};
use serde_json::json;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
) -> Result<Response, Problem> {
    let (found, _) = find_response(&app, &caller.user, &id).await?;
    let ports = app.engine.ports();
    let row = AliasRow {
        name: id.clone(),
        thread: found.run.thread,
        data: AliasData::DeletedResponse,
        created_at: ports.clock.now(),
    };
    ports.directory.writer(&caller.user)?.create_alias(&caller.user, row).await?;
    Ok(axum::Json(json!({ "id": id, "object": "response", "deleted": true })).into_response())
}
