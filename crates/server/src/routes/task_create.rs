//! `POST /v1/tasks`: begins a run, or puts it into its thread's queue.

use super::{idempotency, object, to_its_end};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::problem::Problem;
use crate::query;
use crate::sse;
use crate::watch::{self, Place};
use crate::wire::{self, DeclaredTool, Input};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use engine::{NewRun, OnBusy, StartError, Started};
use model::block::Object;
use model::object::TaskStatus;
use model::ports::{PageOf, RunFilter};
use model::{TaskId, ThreadId, UserId};
use serde::Deserialize;
use std::time::Duration;

/// How often a caller that waits looks whether its run was given up in the queue, which leaves no record.
const QUEUED_LOOK: Duration = Duration::from_secs(1);
/// How many of a thread's newest runs are looked at for the one to go on from.
const RUNS_LOOKED_AT: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    model: String,
    #[serde(default)]
    input: Input,
    thread_id: Option<String>,
    previous: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    wait: bool,
    #[serde(default)]
    tools: Vec<DeclaredTool>,
    #[serde(default)]
    on_busy: Busy,
    #[serde(default)]
    metadata: Object,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Busy {
    #[default]
    Enqueue,
    Reject,
    Interrupt,
    Steer,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query::read(&uri, [])?;
    let json = Json::read(&headers, body, &app.limits).await?;
    let idempotency = idempotency(&headers, "POST /v1/tasks", &json.digest())?;
    let request: Request = json.object()?;
    if request.stream && request.wait {
        return Err(Problem::invalid_body("`stream` and `wait` cannot both be true"));
    }
    let (stream, wait) = (request.stream, request.wait);
    let new = NewRun { idempotency, ..new_run(&app, &caller.user, request).await? };
    check_names(&app, &caller.user, &new).await?;
    check_said(&app, &caller.user, &new).await?;
    // Only a key could make this an earlier run, and only a thread could have one before it.
    let is_first = new.thread.is_none() && new.idempotency.is_none();
    let started = {
        let (engine, user) = (app.engine.clone(), caller.user.clone());
        let agents: Vec<String> = engine.ports().definitions.agents.keys().cloned().collect();
        to_its_end(async move { engine.start(&user, new).await.map_err(|error| refused(error, agents)) }).await?
    };
    if stream {
        let place = match is_first {
            true => Some(watch::first_run(started.thread.clone(), started.task.clone())),
            false => watch::task(&app, &caller.user, &started.task, None).await?,
        };
        return streamed(&app, &caller, &started.task, place).await;
    }
    if wait {
        return settled(&app, &caller.user, &started).await;
    }
    object(&app, &caller.user, &started.task, StatusCode::ACCEPTED).await
}

async fn new_run(app: &App, user: &UserId, request: Request) -> Result<NewRun, Problem> {
    let mut thread = request.thread_id.map(|id| ThreadId::parse(&id)).transpose()?;
    let unknown =
        || Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_previous", "`previous` names no run of this thread");
    let previous = request.previous.map(|id| TaskId::parse(&id)).transpose().map_err(|_| unknown())?;
    // A run names its thread.
    if let (Some(previous), None) = (&previous, &thread) {
        thread = Some(app.engine.run_of(user, previous).await?.ok_or_else(unknown)?.thread);
    }
    Ok(NewRun {
        agent: request.model,
        input: request.input.parts(&app.limits)?,
        thread,
        previous,
        tools: wire::tools(request.tools, &app.limits)?,
        metadata: request.metadata,
        on_busy: match request.on_busy {
            Busy::Enqueue => OnBusy::Enqueue,
            Busy::Reject => OnBusy::Reject,
            Busy::Interrupt => OnBusy::Interrupt,
            Busy::Steer => OnBusy::Steer,
        },
        idempotency: None,
    })
}

/// A tool that the caller declares may not stand in for one of the agent's own.
async fn check_names(app: &App, user: &UserId, new: &NewRun) -> Result<(), Problem> {
    let definitions = &app.engine.ports().definitions;
    let Some(agent) = definitions.resolve(&new.agent).filter(|_| !new.tools.is_empty()) else { return Ok(()) };
    let own = definitions.specs(&agent);
    let Some(taken) = new.tools.iter().find(|tool| own.iter().any(|own| own.name == tool.name)) else { return Ok(()) };
    // A request that was taken before is the same request still, whatever the agent has got since.
    if app.engine.recall(user, new.idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    Err(Problem::invalid_body(format!("`tools`: `{}` is a tool of the agent's own: use another name", taken.name)))
}

/// Who says nothing goes on from a run that was cut or limited. One that ended well leaves nothing to go on from.
async fn check_said(app: &App, user: &UserId, new: &NewRun) -> Result<(), Problem> {
    let (Some(thread), []) = (&new.thread, new.input.as_slice()) else { return Ok(()) };
    let directory = &app.engine.ports().directory;
    let before = match &new.previous {
        Some(previous) => directory.run(user, previous).await?,
        None => {
            let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
            let newest = directory.runs(user, filter, PageOf { before: None, limit: RUNS_LOOKED_AT }).await?;
            // A run that was given up in the queue has left nothing in the thread.
            newest.into_iter().find(|run| run.first.is_some() || !run.status.is_terminal())
        }
    };
    let ended_well = before.is_some_and(|run| run.status == TaskStatus::Completed);
    // The same request again may find that its own run has ended well.
    if ended_well && app.engine.recall(user, new.idempotency.as_ref()).await?.is_none() {
        return Err(StartError::NothingToDo.into());
    }
    Ok(())
}

fn refused(error: StartError, agents: Vec<String>) -> Problem {
    match error {
        StartError::UnknownAgent(_) => Problem::from(error).with("agents", agents),
        error => error.into(),
    }
}

async fn streamed(app: &App, caller: &Caller, task: &TaskId, place: Option<Place>) -> Result<Response, Problem> {
    let mut response = match place {
        Some(place) => sse::response(app, caller, place)?,
        None => StatusCode::NO_CONTENT.into_response(),
    };
    if let Ok(location) = HeaderValue::try_from(format!("/v1/tasks/{task}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn settled(app: &App, user: &UserId, started: &Started) -> Result<Response, Problem> {
    let Started { task, thread } = started;
    loop {
        let settled = tokio::time::timeout(QUEUED_LOOK, app.engine.settled(user, task, thread)).await;
        let over = settled.is_ok();
        settled.unwrap_or(Ok(()))?;
        let Some(row) = app.engine.run_of(user, task).await? else { return Err(Problem::not_found()) };
        if row.status.is_terminal() || row.status == TaskStatus::Paused {
            return object(app, user, task, StatusCode::OK).await;
        }
        // Whoever waits for a run was let go, and the run goes on: so the server does not.
        if over && app.is_stopping() {
            return Err(Problem::stopping().with("task_id", task.as_str()));
        }
    }
}
