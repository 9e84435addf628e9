//! `GET /v1/threads?limit=&before=&name=`: a user's threads, newest first.

use crate::app::App;
use crate::auth::Caller;
use crate::pagination::Page;
use crate::problem::Problem;
use crate::{pagination, query_params};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use gateway::native_json::ListedThread;
use gateway::thread_names::find_threads_by_name;

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, Problem> {
    let [limit, before, name] = query_params::parse_query(&uri, ["limit", "before", "name"])?;
    if name.is_some() && (limit.is_some() || before.is_some()) {
        return Err(Problem::invalid_param("name", "finds all threads at once: omit `limit` and `before`"));
    }
    let (limit, page) = pagination::parse_page_query(limit, before)?;
    let rows = match name {
        Some(name) => find_threads_by_name(&app.gateway, &caller.user, &name).await?,
        None => app.gateway.engine.ports().directory.threads(&caller.user, page).await?,
    };
    Ok(Json(Page::new(rows.iter().map(ListedThread::from), limit)).into_response())
}
