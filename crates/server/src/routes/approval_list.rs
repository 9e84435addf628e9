//! `GET /v1/approvals?status=pending&limit=&before=`: what people were asked, newest first.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{paging, query, wire};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde_json::Value;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<Value>, Problem> {
    let [status, limit, before] = query::read(&uri, ["status", "limit", "before"])?;
    let pending = match status.as_deref() {
        None => false,
        Some("pending") => true,
        Some(_) => return Err(Problem::invalid_query("`status` must be pending, or be left out for all")),
    };
    let (limit, page) = paging::page(limit, before)?;
    let rows = app.engine.ports().directory.approvals(&caller.user, pending, page).await?;
    Ok(Json(paging::answer(rows.iter().map(wire::approval).collect(), limit)))
}
