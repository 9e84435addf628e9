//! `POST /v1/tasks/{id}/tool_results`: what tools gave that the caller runs itself.

use super::{TaskPath, task_row};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::problem::Problem;
use crate::query;
use crate::wire::Input;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use model::id::is_plain;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolResult {
    call_id: String,
    content: Input,
    #[serde(default)]
    #[expect(dead_code, reason = "read for its shape: no run waits for a result yet")]
    error: Option<String>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query::read(&uri, [])?;
    let json = Json::read(&headers, body, &app.limits).await?;
    for result in json.list::<ToolResult>(app.limits.tools_max)? {
        if !is_plain(&result.call_id) {
            return Err(Problem::invalid_body("`call_id` must be the id of a call"));
        }
        result.content.parts(&app.limits)?;
    }
    task_row(&app, &caller.user, &task).await?;
    Err(Problem::new(StatusCode::CONFLICT, "nothing_pending", "the run does not wait for a tool's result"))
}
