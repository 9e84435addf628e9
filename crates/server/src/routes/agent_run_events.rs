//! `GET /api/v1/agent/runs/{thread}/events`: the runs of a thread as agent runs, live, from any place on. It never ends.

use super::agent_names::{self, NamePath};
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
    NamePath(name): NamePath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [after] = query::read(&uri, ["after"])?;
    watch::check_accept(&headers)?;
    let cursor = watch::cursor(&headers, after.as_deref())?;
    let thread = agent_names::find(&app, &caller.user, &name).await?;
    let place = agent_names::place(&app, &caller.user, (&name, &thread), cursor, None).await?;
    if method == Method::HEAD { Ok(sse::head()) } else { sse::response(&app, &caller, place) }
}
