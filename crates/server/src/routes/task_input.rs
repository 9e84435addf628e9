//! `POST /v1/tasks/{id}/input`: says something more to a run; to one that has ended, it begins the next in its thread.

use super::{TaskPath, check_request_size, find_root_run, parse_idempotency_key, run_to_completion, task_response};
use crate::app::App;
use crate::attachments::uploads::Uploads;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::native_api::TaskInput;
use crate::problem::Problem;
use crate::query_params;
use crate::start_run::{check_web_file_count, start_run};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use engine::{NewRun, StartError, StartedRun};
use model::content::ContentPart;
use model::ports::{IdempotencyKey, RunRow};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    input: TaskInput,
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
    let idempotency = parse_idempotency_key(&headers, &format!("POST /v1/tasks/{task}/input"), &json.digest())?;
    let input = json.into_object::<Request>()?.input.into_parts(&app.limits)?;
    let row = find_root_run(&app, &caller.user, &task).await?;
    let started = match app.engine.find_submission(&caller.user, idempotency.as_ref()).await? {
        Some(known) => known,
        None => deliver_input(&app, &caller, row, input, idempotency).await?,
    };
    task_response(&app, &caller.user, &started.task, StatusCode::ACCEPTED).await
}

async fn deliver_input(
    app: &App,
    caller: &Caller,
    row: RunRow,
    mut input: Vec<ContentPart>,
    idempotency: Option<IdempotencyKey>,
) -> Result<StartedRun, Problem> {
    if input.is_empty() {
        return Err(StartError::NoInput.into());
    }
    let luggage = Uploads::extract(app, "input", input.iter_mut()).await?;
    if row.status.is_terminal() {
        let new = NewRun { agent: row.agent, input, thread: Some(row.thread), idempotency, ..NewRun::default() };
        return start_run(app, &caller.user, new, luggage).await;
    }
    check_web_file_count(app, &input)?;
    check_request_size(&input)?;
    let started = StartedRun { task: row.id.clone(), thread: row.thread.clone() };
    let (app, user) = (app.clone(), caller.user.clone());
    run_to_completion(async move {
        luggage.store_in_thread(&app, (&user, &row.thread), input.iter_mut()).await?;
        Ok::<_, Problem>(app.engine.steer(&user, &row.thread, row.id, input, idempotency).await?)
    })
    .await?;
    Ok(started)
}
