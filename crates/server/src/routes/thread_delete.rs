//! `DELETE /v1/threads/{id}`: deletes a thread, and the files that nothing else refers to.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use gateway::task_commands::delete_thread;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    delete_thread(&app.gateway, &caller.user, thread).await?;
    Ok(StatusCode::NO_CONTENT)
}
