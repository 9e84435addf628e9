//! `GET /v1/tasks?status=&thread_id=&limit=&before=`: a user's runs, newest first.

use crate::app::App;
use crate::auth::Caller;
use crate::pagination::Page;
use crate::problem::Problem;
use crate::{pagination, query_params};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use gateway::native_json::ListedTask;
use model::ThreadId;
use model::ports::RunFilter;
use model::task::TaskStatus;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, Problem> {
    let [status, thread, limit, before] = query_params::parse_query(&uri, ["status", "thread_id", "limit", "before"])?;
    let (limit, page) = pagination::parse_page_query(limit, before)?;
    let filter = RunFilter {
        status: status.as_deref().map(parse_statuses).transpose()?.unwrap_or_default(),
        thread: thread.map(|thread| ThreadId::parse(&thread)).transpose()?,
    };
    let rows = app.gateway.engine.ports().directory.runs(&caller.user, filter, page).await?;
    Ok(Json(Page::new(rows.iter().map(ListedTask::from), limit)).into_response())
}

/// One status, or several with commas between them.
fn parse_statuses(text: &str) -> Result<Vec<TaskStatus>, Problem> {
    let unknown = || {
        let all = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
        Problem::invalid_param("status", format!("must be a comma-separated list of {all}"))
    };
    text.split(',').map(|word| TaskStatus::parse(word).ok_or_else(unknown)).collect()
}
