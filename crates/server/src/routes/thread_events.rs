//! `GET /v1/threads/{id}/events`: everything in a thread, live, from any place on. It never ends.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{query_params, sse, stream_start};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [after, format] = query_params::parse_query(&uri, ["after", "format"])?;
    let format = stream_start::NativeFormat::parse(format.as_deref())?;
    stream_start::check_accepts_sse(&headers)?;
    let cursor = stream_start::parse_request_cursor(&headers, after.as_deref())?;
    let place = stream_start::start_of_thread(&app, &caller.user, &thread, format, cursor).await?;
    if method == Method::HEAD { Ok(sse::sse_head()) } else { sse::sse_response(&app, &caller, place) }
}
