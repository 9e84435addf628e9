//! `GET /api/v1/agent/runs/{thread}/events`: the runs of a thread as agent runs, from any cursor, live. The stream never ends.

use super::ThreadNamePath;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::stream_request::{check_accepts_sse, parse_request_cursor};
use crate::{query_params, sse};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use gateway::thread_names::{NamedThread, find_named_thread, start_of_agent_runs};
use model::ports::AliasKind;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(name): ThreadNamePath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [after] = query_params::parse_query(&uri, ["after"])?;
    check_accepts_sse(&headers)?;
    let cursor = parse_request_cursor(&headers, after.as_deref())?;
    let thread = find_named_thread(&app.gateway, &caller.user, AliasKind::AgentRun, &name).await?;
    let named = NamedThread { name: &name, thread: &thread };
    let stream = start_of_agent_runs(&app.gateway, &caller.user, named, cursor, None).await?;
    if method == Method::HEAD { Ok(sse::sse_head()) } else { sse::sse_response(&app, &caller, stream) }
}
