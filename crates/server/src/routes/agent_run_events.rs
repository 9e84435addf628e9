//! `GET /api/v1/agent/runs/{thread}/events`: the runs of a thread as agent runs, live, from any place on. It never ends.

use super::agent_threads::{self, ThreadNamePath};
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
    ThreadNamePath(name): ThreadNamePath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [after] = query_params::parse_query(&uri, ["after"])?;
    stream_start::check_accepts_sse(&headers)?;
    let cursor = stream_start::parse_request_cursor(&headers, after.as_deref())?;
    let thread = agent_threads::find_named_thread(&app, &caller.user, &name).await?;
    let place = agent_threads::start_of_agent_runs(&app, &caller.user, (&name, &thread), cursor, None).await?;
    if method == Method::HEAD { Ok(sse::sse_head()) } else { sse::sse_response(&app, &caller, place) }
}
