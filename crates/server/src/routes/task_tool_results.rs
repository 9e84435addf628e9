//! `POST /v1/tasks/{id}/tool_results`: submits results of client tools, all of them or none.

use super::{TaskPath, task_response};
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::mcp_authorization::parse_mcp_credentials;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use gateway::mcp_credentials::keep_for_run;
use gateway::run_lookup::find_run_of_task;
use gateway::task_commands::submit_tool_results;
use protocol::task::{SubmittedToolResult, parse_tool_results};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    TaskPath(task): TaskPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let _large = json.take_permit();
    let idempotency =
        parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/tool_results"), || json.digest())?;
    let results: Vec<SubmittedToolResult> = json.into_list(app.gateway.limits.tools_max)?;
    find_run_of_task(&app.gateway, &caller.user, &task).await?;
    if results.is_empty() {
        return Err(Problem::invalid_body("the list must not be empty"));
    }
    let results = parse_tool_results(results, app.gateway.limits.parts_max)?;
    keep_for_run(&app.gateway, &caller.user, &task, parse_mcp_credentials(&app, &headers)?).await?;
    submit_tool_results(&app.gateway, &caller.user, &task, results, idempotency).await?;
    task_response(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}
