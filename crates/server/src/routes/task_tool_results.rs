//! `POST /v1/tasks/{id}/tool_results`: what tools gave that the caller runs itself. All of it counts, or nothing.

use super::{TaskPath, check_size, idempotency, object, task_row, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::config::HttpLimits;
use crate::files::intake::{self, Luggage};
use crate::problem::Problem;
use crate::query;
use crate::wire::Input;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use engine::AnswerError;
use model::block::ContentPart;
use model::command::ClientToolResult;
use model::event::{ErrorInfo, PendingKind};
use model::id::is_valid_id;
use model::ports::RunRow;
use model::{CallId, UserId};
use serde::Deserialize;
use std::collections::HashSet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolResult {
    call_id: String,
    content: Input,
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
    let [] = query::read(&uri, [])?;
    let mut json = Json::read(&headers, body, &app.limits).await?;
    let _large = json.room();
    let idempotency = idempotency(&headers, &format!("POST /v1/tasks/{task}/tool_results"), &json.digest())?;
    let given = json.list(app.limits.tools_max)?;
    let run = task_row(&app, &caller.user, &task).await?;
    let mut results = results(given, &app.limits)?;
    let luggage = Luggage::unpack(&app, "content", intake::of_results(&mut results)).await?;
    for result in &results {
        check_size(&(&result.content, &result.error))?;
    }
    if app.engine.find_submission(&caller.user, idempotency.as_ref()).await?.is_none() {
        let (app, user) = (app.clone(), caller.user.clone());
        to_its_end(async move {
            keep(&app, &user, &run, &mut results, &luggage).await?;
            Ok::<_, Problem>(app.engine.submit_client_results(&user, &run, results, idempotency).await?)
        })
        .await?;
    }
    object(&app, &caller.user, &task, StatusCode::ACCEPTED).await
}

/// Keeps what came along, if the run waits for it.
async fn keep(
    app: &App,
    user: &UserId,
    run: &RunRow,
    results: &mut [ClientToolResult],
    luggage: &Luggage,
) -> Result<(), Problem> {
    if !intake::any(intake::of_results(results)) {
        return Ok(());
    }
    let pending = app.engine.pending(user, run).await?;
    let waits = |call: &CallId| {
        pending.iter().any(|pending| pending.kind == PendingKind::ClientTool && pending.call_id == *call)
    };
    if let Some(stray) = results.iter().find(|result| !waits(&result.call_id)) {
        return Err(AnswerError::NotPending(stray.call_id.clone()).into());
    }
    luggage.add(app, (user, &run.thread), intake::of_results(results)).await
}

fn results(given: Vec<ToolResult>, limits: &HttpLimits) -> Result<Vec<ClientToolResult>, Problem> {
    if given.is_empty() {
        return Err(Problem::invalid_body("the list is empty: give at least one result"));
    }
    let mut known = HashSet::new();
    let check = |ToolResult { call_id, content, error }| {
        if !is_valid_id(&call_id) {
            return Err(Problem::invalid_body("`call_id` must be the id of a call"));
        }
        if !known.insert(call_id.clone()) {
            return Err(Problem::invalid_body(format!("`call_id`: `{call_id}` stands twice")));
        }
        let mut content = content.parts(limits)?;
        // The model must read something: if nothing else, what went wrong.
        if let (Some(error), []) = (&error, content.as_slice()) {
            content.push(ContentPart::text(error));
        }
        let error = error.map(|error| ErrorInfo::new("client_error", error));
        Ok(ClientToolResult { call_id: CallId::from(call_id), content, error })
    };
    given.into_iter().map(check).collect()
}
