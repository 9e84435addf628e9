//! `GET /v1/tasks?status=&thread_id=&limit=&before=`: a user's runs, newest first.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{pagination, query_params};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use gateway::native_json;
use model::ThreadId;
use model::ports::RunFilter;
use model::task::TaskStatus;
use serde_json::Value;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<Value>, Problem> {
    let [status, thread, limit, before] = query_params::parse_query(&uri, ["status", "thread_id", "limit", "before"])?;
    let (limit, page) = pagination::parse_page_query(limit, before)?;
    let filter = RunFilter {
        status: status.as_deref().map(parse_statuses).transpose()?.unwrap_or_default(),
        thread: thread.map(|thread| ThreadId::parse(&thread)).transpose()?,
    };
    let rows = app.gateway.engine.ports().directory.runs(&caller.user, filter, page).await?;
    Ok(Json(pagination::page_json(rows.iter().map(native_json::run_json).collect(), limit)))
}

/// One status, or several with commas between them.
fn parse_statuses(text: &str) -> Result<Vec<TaskStatus>, Problem> {
    let unknown = || {
        let all = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
        Problem::invalid_param("status", format!("must be a comma-separated list of {all}"))
    };
    text.split(',').map(|word| TaskStatus::parse(word).ok_or_else(unknown)).collect()
}
