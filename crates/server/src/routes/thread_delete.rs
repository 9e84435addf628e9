//! `DELETE /v1/threads/{id}`: removes a thread with everything in it, and the bytes that nothing else uses.

use super::{ThreadPath, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use model::ports::StoreError;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let [] = query::read(&uri, [])?;
    let deleted = to_its_end(async move {
        let deleted = app.engine.delete_thread(&caller.user, &thread).await?;
        if deleted {
            app.files.clear_soon().await;
        }
        Ok::<_, StoreError>(deleted)
    });
    let deleted = deleted.await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}
