//! `POST /v1/responses/{id}/cancel`: stops the run that a response belongs to. One that has ended stays as it is.

use super::{ResponsePath, find_response, start_of_response};
use crate::app::App;
use crate::attachments::inline_images;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::routes::run_to_completion;
use crate::stream_start;
use axum::extract::State;
use axum::response::Response;
use model::command::CancelCommand;
use model::event::CancelMode;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
) -> Result<Response, Problem> {
    let (found, read) = find_response(&app, &caller.user, &id).await?;
    if found.run.status.is_terminal() {
        return Ok(inline_images::json_response_with_images(&app, &caller.user, &found.run.thread, &read.object));
    }
    let (engine, user) = (app.engine.clone(), caller.user.clone());
    let (thread, task_id) = (found.run.thread.clone(), found.run.id.clone());
    let cancel = CancelCommand { task_id, mode: CancelMode::Immediate };
    run_to_completion(async move { engine.cancel(&user, &thread, cancel, None).await }).await?;
    if !read.is_ended {
        let place = start_of_response(&app, &caller.user, (&found.run.id, &found.run.thread, found.segment), 0).await?;
        stream_start::wait_for_end(&app, &caller.user, place).await?;
    }
    let (_, read) = find_response(&app, &caller.user, &id).await?;
    Ok(inline_images::json_response_with_images(&app, &caller.user, &found.run.thread, &read.object))
}
