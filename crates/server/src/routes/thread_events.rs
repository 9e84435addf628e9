//! `GET /v1/threads/{id}/events`: the events of a thread from any cursor, live. The stream never ends.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::stream_request::{check_accepts_sse, parse_request_cursor};
use crate::{query_params, sse};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use gateway::stream_start::{NativeFormat, start_of_thread};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [after, format] = query_params::parse_query(&uri, ["after", "format"])?;
    let format = NativeFormat::parse(format.as_deref())?;
    check_accepts_sse(&headers)?;
    let cursor = parse_request_cursor(&headers, after.as_deref())?;
    let stream = start_of_thread(&app.gateway, &caller.user, &thread, format, cursor).await?;
    if method == Method::HEAD { Ok(sse::sse_head()) } else { sse::sse_response(&app, &caller, stream) }
}
