//! `POST /v1/tasks/{id}/input`: says something more to a run; to one that has ended, it begins the next in its thread.

use super::{TaskPath, check_size, idempotency, object, root_row, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::begin::{begin, check_addresses};
use crate::body::Json;
use crate::files::intake::Luggage;
use crate::problem::Problem;
use crate::query;
use crate::wire::Input;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use engine::{NewRun, StartError, StartedRun};
use model::block::ContentPart;
use model::ports::{IdempotencyKey, RunRow};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    input: Input,
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
    let idempotency = idempotency(&headers, &format!("POST /v1/tasks/{task}/input"), &json.digest())?;
    let input = json.object::<Request>()?.input.parts(&app.limits)?;
    let row = root_row(&app, &caller.user, &task).await?;
    let started = match app.engine.find_submission(&caller.user, idempotency.as_ref()).await? {
        Some(known) => known,
        None => said(&app, &caller, row, input, idempotency).await?,
    };
    object(&app, &caller.user, &started.task, StatusCode::ACCEPTED).await
}

async fn said(
    app: &App,
    caller: &Caller,
    row: RunRow,
    mut input: Vec<ContentPart>,
    idempotency: Option<IdempotencyKey>,
) -> Result<StartedRun, Problem> {
    if input.is_empty() {
        return Err(StartError::NoInput.into());
    }
    let luggage = Luggage::unpack(app, "input", input.iter_mut()).await?;
    if row.status.is_terminal() {
        let new = NewRun { agent: row.agent, input, thread: Some(row.thread), idempotency, ..NewRun::default() };
        return begin(app, &caller.user, new, luggage).await;
    }
    check_addresses(app, &input)?;
    check_size(&input)?;
    let started = StartedRun { task: row.id.clone(), thread: row.thread.clone() };
    let (app, user) = (app.clone(), caller.user.clone());
    to_its_end(async move {
        luggage.add(&app, (&user, &row.thread), input.iter_mut()).await?;
        Ok::<_, Problem>(app.engine.steer(&user, &row.thread, row.id, input, idempotency).await?)
    })
    .await?;
    Ok(started)
}
