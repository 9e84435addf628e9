//! `POST /v1/tasks/{id}/tool_results`: submits results of client tools, all of them or none.

use super::{TaskPath, task_response};
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::native_api::TaskInput;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use gateway::limits::InputLimits;
use gateway::run_lookup::find_run_of_task;
use gateway::task_commands::submit_tool_results;
use model::CallId;
use model::command::ClientToolResult;
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::id::is_valid_id;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::HashSet;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolResultRequest")]
pub(crate) struct ToolResultBody {
    call_id: String,
    content: TaskInput,
    /// The tool failed. Without `content`, the model reads this.
    #[serde(default)]
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
    let [] = query_params::parse_query(&uri, [])?;
    let mut json = JsonBody::read(&headers, body, &app.limits).await?;
    let _large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/tool_results"), &json.digest())?;
    let results = json.into_list(app.gateway.limits.tools_max)?;
    let run = find_run_of_task(&app.gateway, &caller.user, &task).await?;
    let results = parse_results(results, &app.gateway.limits)?;
    submit_tool_results(&app.gateway, &caller.user, run, results, idempotency).await?;
    task_response(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}

fn parse_results(results: Vec<ToolResultBody>, limits: &InputLimits) -> Result<Vec<ClientToolResult>, Problem> {
    if results.is_empty() {
        return Err(Problem::invalid_body("the list must not be empty"));
    }
    let mut call_ids = HashSet::new();
    let check = |ToolResultBody { call_id, content, error }| {
        if !is_valid_id(&call_id) {
            return Err(Problem::invalid_field("call_id", "must be the id of a call"));
        }
        if !call_ids.insert(call_id.clone()) {
            return Err(Problem::invalid_field("call_id", format!("duplicate `{call_id}`")));
        }
        let mut content = content.into_parts(limits)?;
        // The model must read something: at least the error.
        if let (Some(error), []) = (&error, content.as_slice()) {
            content.push(ContentPart::text(error));
        }
        let error = error.map(|error| ErrorInfo::new(ErrorCode::ClientError, error));
        Ok(ClientToolResult { call_id: CallId::from(call_id), content, error })
    };
    results.into_iter().map(check).collect()
}
