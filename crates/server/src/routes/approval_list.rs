//! `GET /v1/approvals?status=pending&limit=&before=`: a user's approval requests, newest first.

use crate::app::App;
use crate::auth::Caller;
use crate::pagination::Page;
use crate::problem::Problem;
use crate::{pagination, query_params};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use gateway::native_json::ApprovalObject;
use model::ports::ApprovalFilter;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, Problem> {
    let [status, limit, before] = query_params::parse_query(&uri, ["status", "limit", "before"])?;
    let filter = match status.as_deref() {
        None => ApprovalFilter::All,
        Some("pending") => ApprovalFilter::Pending,
        Some(_) => return Err(Problem::invalid_param("status", "must be `pending`, or be omitted for all")),
    };
    let (limit, page) = pagination::parse_page_query(limit, before)?;
    let rows = app.gateway.engine.ports().directory.approvals(&caller.user, filter, page).await?;
    Ok(Json(Page::new(rows.iter().map(ApprovalObject::from), limit)).into_response())
}
