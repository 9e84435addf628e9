//! `DELETE /v1/threads/{id}`: removes a thread with everything in it, and the bytes that nothing else uses.

use super::{ThreadPath, run_to_completion};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use model::ports::StoreError;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let deleted = run_to_completion(async move {
        let deleted = app.engine.delete_thread(&caller.user, &thread).await?;
        if deleted {
            app.shares.forget_thread(&thread);
            app.files.delete_released_soon().await;
        }
        Ok::<_, StoreError>(deleted)
    });
    let deleted = deleted.await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}
