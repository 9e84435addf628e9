//! `GET /v1/tasks/{id}/events`: the task and its descendants, live, from any place on.

use super::TaskPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{query, sse, watch};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [after, format] = query::read(&uri, ["after", "format"])?;
    let format = watch::Format::parse(format.as_deref())?;
    watch::check_accept(&headers)?;
    let cursor = watch::cursor(&headers, after.as_deref())?;
    match watch::task(&app, &caller.user, &task, format, cursor).await? {
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(_) if method == Method::HEAD => Ok(sse::head()),
        Some(place) => sse::response(&app, &caller, place),
    }
}
