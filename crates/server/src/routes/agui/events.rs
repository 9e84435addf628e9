//! `GET /agui/{agent}/threads/{thread}/events`: the runs of a thread in AG-UI, from any cursor, live. Without a cursor it
//! begins with the thread as it is. The stream never ends.

use super::invalid_request;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use crate::routes::ThreadNamePath;
use crate::sse::{self, SseStyle};
use crate::stream_request::{check_accepts_sse, parse_request_cursor};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use gateway::agui_streams::{AgUiThread, join_agui_thread};
use gateway::thread_names::find_named_thread;
use model::ports::AliasKind;
use protocol::agui::parse_agui_version;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(name): ThreadNamePath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [version, after] = query_params::parse_query(&uri, ["protocolVersion", "after"])?;
    let version = parse_agui_version(version.as_deref()).map_err(invalid_request)?;
    check_accepts_sse(&headers)?;
    let cursor = parse_request_cursor(&headers, after.as_deref())?;
    let thread = find_named_thread(&app.gateway, &caller.user, AliasKind::AgUiThread, &name).await?;
    let joined = AgUiThread { version, name: &name, thread: &thread };
    // Before the snapshot is built: it takes memory until the client has read it.
    let permit = sse::acquire_stream_permit(&app, &caller)?;
    let stream = join_agui_thread(&app.gateway, &caller.user, joined, cursor).await?;
    if method == Method::HEAD {
        return Ok(sse::sse_head());
    }
    Ok(sse::sse_response_with_prelude(&app, &caller, stream, SseStyle::PLAIN, permit))
}
