//! `DELETE /v1/threads/{id}`: removes a thread with everything in it.

use super::{ThreadPath, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query;
use axum::extract::State;
use axum::http::{StatusCode, Uri};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let [] = query::read(&uri, [])?;
    let engine = app.engine.clone();
    let deleted = to_its_end(async move { engine.delete_thread(&caller.user, &thread).await }).await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}
