//! `GET /v1/threads?limit=&before=`: a user's threads, newest first.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{paging, query, wire};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde_json::Value;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<Value>, Problem> {
    let [limit, before] = query::read(&uri, ["limit", "before"])?;
    let (limit, page) = paging::page(limit, before)?;
    let rows = app.engine.ports().directory.threads(&caller.user, page).await?;
    Ok(Json(paging::answer(rows.iter().map(wire::thread).collect(), limit)))
}
