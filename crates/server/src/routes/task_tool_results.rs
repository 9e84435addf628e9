//! `POST /v1/tasks/{id}/tool_results`: what tools gave that the caller runs itself. All of it counts, or nothing.

use super::{TaskPath, check_request_size, find_run_of_task, parse_idempotency_key, run_to_completion, task_response};
use crate::app::App;
use crate::attachments::uploads::{self, Uploads};
use crate::auth::Caller;
use crate::config::HttpLimits;
use crate::json_body::JsonBody;
use crate::native_api::TaskInput;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use engine::AnswerError;
use model::command::ClientToolResult;
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::event::PendingKind;
use model::id::is_valid_id;
use model::ports::RunRow;
use model::{CallId, UserId};
use serde::Deserialize;
use std::collections::HashSet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolResultBody {
    call_id: String,
    content: TaskInput,
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
    let given = json.into_list(app.limits.tools_max)?;
    let run = find_run_of_task(&app, &caller.user, &task).await?;
    let mut results = parse_results(given, &app.limits)?;
    let luggage = Uploads::extract(&app, "content", uploads::parts_of_results(&mut results)).await?;
    for result in &results {
        check_request_size(&(&result.content, &result.error))?;
    }
    if app.engine.find_submission(&caller.user, idempotency.as_ref()).await?.is_none() {
        let (app, user) = (app.clone(), caller.user.clone());
        run_to_completion(async move {
            store_uploads(&app, &user, &run, &mut results, &luggage).await?;
            Ok::<_, Problem>(app.engine.submit_client_results(&user, &run, results, idempotency).await?)
        })
        .await?;
    }
    task_response(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}

/// Keeps what came along, if the run waits for it.
async fn store_uploads(
    app: &App,
    user: &UserId,
    run: &RunRow,
    results: &mut [ClientToolResult],
    luggage: &Uploads,
) -> Result<(), Problem> {
    if !uploads::has_stored_files(uploads::parts_of_results(results)) {
        return Ok(());
    }
    let pending = app.engine.pending(user, run).await?;
    let waits = |call: &CallId| {
        pending.iter().any(|pending| pending.kind == PendingKind::ClientTool && pending.call_id == *call)
    };
    if let Some(stray) = results.iter().find(|result| !waits(&result.call_id)) {
        return Err(AnswerError::NotPending(stray.call_id.clone()).into());
    }
    luggage.store_in_thread(app, (user, &run.thread), uploads::parts_of_results(results)).await
}

fn parse_results(given: Vec<ToolResultBody>, limits: &HttpLimits) -> Result<Vec<ClientToolResult>, Problem> {
    if given.is_empty() {
        return Err(Problem::invalid_body("the list must not be empty"));
    }
    let mut known = HashSet::new();
    let check = |ToolResultBody { call_id, content, error }| {
        if !is_valid_id(&call_id) {
            return Err(Problem::invalid_field("call_id", "must be the id of a call"));
        }
        if !known.insert(call_id.clone()) {
            return Err(Problem::invalid_field("call_id", format!("duplicate `{call_id}`")));
        }
        let mut content = content.into_parts(limits)?;
        // The model must read something: if nothing else, what went wrong.
        if let (Some(error), []) = (&error, content.as_slice()) {
            content.push(ContentPart::text(error));
        }
        let error = error.map(|error| ErrorInfo::new(ErrorCode::ClientError, error));
        Ok(ClientToolResult { call_id: CallId::from(call_id), content, error })
    };
    given.into_iter().map(check).collect()
}
