//! `GET /v1/threads/{id}/events`: everything in a thread, live, from any place on. It never ends.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{query, sse, watch};
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
    let [after, format] = query::read(&uri, ["after", "format"])?;
    let format = watch::Format::parse(format.as_deref())?;
    watch::check_accept(&headers)?;
    let cursor = watch::cursor(&headers, after.as_deref())?;
    let place = watch::thread(&app, &caller.user, &thread, format, cursor).await?;
    if method == Method::HEAD { Ok(sse::head()) } else { sse::response(&app, &caller, place) }
}
