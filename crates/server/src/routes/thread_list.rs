//! `GET /v1/threads?limit=&before=`: a user's threads, newest first.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{pagination, query_params};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use gateway::native_json;
use serde_json::Value;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<Value>, Problem> {
    let [limit, before] = query_params::parse_query(&uri, ["limit", "before"])?;
    let (limit, page) = pagination::parse_page_query(limit, before)?;
    let rows = app.gateway.engine.ports().directory.threads(&caller.user, page).await?;
    Ok(Json(pagination::page_json(rows.iter().map(native_json::thread_json).collect(), limit)))
}
