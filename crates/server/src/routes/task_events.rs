//! `GET /v1/tasks/{id}/events`: the events of a task and its descendants from any cursor, live.

use super::TaskPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::stream_request::{check_accepts_sse, parse_request_cursor};
use crate::{query_params, sse};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use gateway::stream_start::{NativeFormat, start_of_task};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [after, format, until] = query_params::parse_query(&uri, ["after", "format", "until"])?;
    let format = NativeFormat::parse(format.as_deref())?;
    let until = format.parse_until(until.as_deref())?;
    check_accepts_sse(&headers)?;
    let cursor = parse_request_cursor(&headers, after.as_deref())?;
    match start_of_task(&app.gateway, &caller.user, &task, format, cursor).await? {
        // Tells a browser to stop reconnecting.
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(_) if method == Method::HEAD => Ok(sse::sse_head()),
        Some(stream) => {
            app.abandoned_tasks.reclaim(&task);
            sse::sse_response(&app, &caller, stream.with_until(until))
        }
    }
}
