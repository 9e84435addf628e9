//! `POST /v1/tasks`: begins a run, or puts it into its thread's queue.

use super::{parse_idempotency_key, task_response};
use crate::app::App;
use crate::attachments::uploads::Uploads;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::native_api::{self, DeclaredClientTool, TaskInput};
use crate::problem::Problem;
use crate::query_params;
use crate::shares;
use crate::sse::{self, SseStyle};
use crate::start_run::start_run;
use crate::stream_limiter::StreamPermit;
use crate::stream_start::{self, StreamStart};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use engine::{NewRun, OnBusy, StartedRun};
use model::error::ErrorCode;
use model::json::JsonObject;
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    model: String,
    #[serde(default)]
    input: TaskInput,
    thread_id: Option<String>,
    previous: Option<String>,
    share: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    wait: bool,
    #[serde(default)]
    tools: Vec<DeclaredClientTool>,
    #[serde(default)]
    on_busy: OnBusyParam,
    #[serde(default)]
    metadata: JsonObject,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnBusyParam {
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
    let [format] = query_params::parse_query(&uri, ["format"])?;
    let format = stream_start::NativeFormat::parse(format.as_deref())?;
    let mut json = JsonBody::read(&headers, body, &app.limits).await?;
    let large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /v1/tasks", &json.digest())?;
    let request: Request = json.into_object()?;
    if request.stream && request.wait {
        return Err(Problem::invalid_body("`stream` and `wait` cannot both be true"));
    }
    let (stream, wait) = (request.stream, request.wait);
    let (new, luggage) = new_run(&app, &caller.user, request).await?;
    let new = NewRun { idempotency, ..new };
    // Only a key could make this an earlier run, and only a thread could have one before it.
    let is_first = new.thread.is_none() && new.idempotency.is_none();
    let room = stream.then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    let started = start_run(&app, &caller.user, new, luggage).await?;
    drop(large);
    if let Some(room) = room {
        let place = match is_first {
            true => Some(stream_start::start_of_first_run(started.thread.clone(), started.task.clone(), format)),
            false => stream_start::start_of_task(&app, &caller.user, &started.task, format, None).await?,
        };
        return Ok(stream_response(&app, &caller, &started.task, place, room));
    }
    if wait {
        return wait_for_result(&app, &caller.user, &started).await;
    }
    task_response(&app, &caller.user, &started.task, StatusCode::ACCEPTED).await
}

async fn new_run(app: &App, user: &UserId, request: Request) -> Result<(NewRun, Uploads), Problem> {
    let mut thread = request.thread_id.map(|id| ThreadId::parse(&id)).transpose()?;
    let unknown = || Problem::new(ErrorCode::UnknownPrevious, "the thread has no such run");
    let previous = request.previous.map(|id| TaskId::parse(&id)).transpose().map_err(|_| unknown())?;
    // A run names its thread.
    if let (Some(previous), None) = (&previous, &thread) {
        thread = Some(app.engine.run_of_task(user, previous).await?.ok_or_else(unknown)?.thread);
    }
    let (shown, mut luggage) = match &request.share {
        Some(_) if thread.is_some() => {
            return Err(Problem::invalid_field("share", "starts a new thread: omit `thread_id` and `previous`"));
        }
        Some(token) => shares::fork_share(app, token).await?,
        None => (NewRun::default(), Uploads::default()),
    };
    let mut input = request.input.into_parts(&app.limits)?;
    luggage.extend(Uploads::extract(app, "input", input.iter_mut()).await?);
    let new = NewRun {
        agent: request.model,
        input,
        thread,
        previous,
        tools: native_api::parse_client_tools(request.tools, &app.limits)?,
        metadata: request.metadata,
        on_busy: match request.on_busy {
            OnBusyParam::Enqueue => OnBusy::Enqueue,
            OnBusyParam::Reject => OnBusy::Reject,
            OnBusyParam::Interrupt => OnBusy::Interrupt,
            OnBusyParam::Steer => OnBusy::Steer,
        },
        ..shown
    };
    Ok((new, luggage))
}

fn stream_response(
    app: &App,
    caller: &Caller,
    task: &TaskId,
    place: Option<StreamStart>,
    room: StreamPermit,
) -> Response {
    let mut response = match place {
        Some(place) => sse::sse_response_with_permit(app, caller, place, SseStyle::STANDARD, room),
        None => StatusCode::NO_CONTENT.into_response(),
    };
    if let Ok(location) = HeaderValue::try_from(format!("/v1/tasks/{task}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

async fn wait_for_result(app: &App, user: &UserId, started: &StartedRun) -> Result<Response, Problem> {
    let StartedRun { task, thread } = started;
    loop {
        let settled =
            tokio::time::timeout(stream_start::QUEUE_POLL_INTERVAL, app.engine.wait_settled(user, task, thread)).await;
        let over = settled.is_ok();
        settled.unwrap_or(Ok(()))?;
        let Some(row) = app.engine.run_of_task(user, task).await? else { return Err(Problem::not_found()) };
        if row.status.is_terminal() || row.status == TaskStatus::Paused {
            return task_response(app, user, task, StatusCode::OK).await;
        }
        // Whoever waits for a run was let go, and the run goes on: so the server does not.
        if over && app.is_shutting_down() {
            return Err(Problem::shutting_down().with_extension("task_id", task.as_str()));
        }
    }
}
