//! `POST /v1/responses/{id}/cancel`: stops the run that a response belongs to. One that has ended stays as it is.

use super::{ResponsePath, find, place};
use crate::app::App;
use crate::auth::Caller;
use crate::files::inline;
use crate::problem::Problem;
use crate::routes::to_its_end;
use crate::watch;
use axum::extract::State;
use axum::response::Response;
use model::command::CancelCommand;
use model::event::CancelMode;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
) -> Result<Response, Problem> {
    let (found, read) = find(&app, &caller.user, &id).await?;
    if found.run.status.is_terminal() {
        return Ok(inline::body(&app, &caller.user, &found.run.thread, &read.object));
    }
    let (engine, user) = (app.engine.clone(), caller.user.clone());
    let (thread, task_id) = (found.run.thread.clone(), found.run.id.clone());
    let cancel = CancelCommand { task_id, mode: CancelMode::Immediate };
    to_its_end(async move { engine.cancel(&user, &thread, cancel, None).await }).await?;
    if !read.over {
        let place = place(&app, &caller.user, (&found.run.id, &found.run.thread, found.segment), 0).await?;
        watch::ended(&app, &caller.user, place).await?;
    }
    let (_, read) = find(&app, &caller.user, &id).await?;
    Ok(inline::body(&app, &caller.user, &found.run.thread, &read.object))
}
