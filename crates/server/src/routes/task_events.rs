//! `GET /v1/tasks/{id}/events`: the task and its descendants, live, from any place on.

use super::TaskPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{query_params, sse, stream_start};
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
    let [after, format] = query_params::parse_query(&uri, ["after", "format"])?;
    let format = stream_start::NativeFormat::parse(format.as_deref())?;
    stream_start::check_accepts_sse(&headers)?;
    let cursor = stream_start::parse_request_cursor(&headers, after.as_deref())?;
    match stream_start::start_of_task(&app, &caller.user, &task, format, cursor).await? {
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(_) if method == Method::HEAD => Ok(sse::sse_head()),
        Some(place) => sse::sse_response(&app, &caller, place),
    }
}
