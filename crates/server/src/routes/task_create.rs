//! `POST /v1/tasks`: starts a run, or queues it in its thread.

use super::task_response;
use crate::app::App;
use crate::auth::Caller;
use crate::disconnect_guard::DisconnectGuard;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::mcp_authorization::parse_mcp_credentials;
use crate::problem::Problem;
use crate::query_params;
use crate::sse::{self, SseStyle};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use engine::{NewRun, OnBusy, StartedRun};
use gateway::attachments::uploads::Uploads;
use gateway::client_tools::check_client_tools;
use gateway::fork_share::fork_share;
use gateway::start_run::start_run;
use gateway::stream_limiter::StreamPermit;
use gateway::stream_start::{NativeFormat, StreamStart, start_of_new_run, start_of_task};
use gateway::task_commands::{Settled, wait_until_settled};
use model::error::ErrorCode;
use model::{TaskId, ThreadId, UserId};
use protocol::task::{CreateTaskRequest, OnBusyParam, OnDisconnectParam};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [format, until] = query_params::parse_query(&uri, ["format", "until"])?;
    let format = NativeFormat::parse(format.as_deref())?;
    let until = format.parse_until(until.as_deref())?;
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /v1/tasks", || json.digest())?;
    let request: CreateTaskRequest = json.into_object()?;
    if request.stream && request.wait {
        return Err(Problem::invalid_body("`stream` and `wait` cannot both be true"));
    }
    let (stream, wait, on_disconnect) = (request.stream, request.wait, request.on_disconnect);
    if on_disconnect == OnDisconnectParam::Cancel && !stream && !wait {
        return Err(Problem::invalid_field("on_disconnect", "`cancel` needs `stream` or `wait`"));
    }
    let (new, uploads) = new_run(&app, &caller.user, request).await?;
    let new = NewRun { idempotency, mcp_credentials: parse_mcp_credentials(&app, &headers)?, ..new };
    // Who waits for the result takes a stream's place.
    let permit = (stream || wait).then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    let started = start_run(&app.gateway, &caller.user, new, uploads).await?;
    drop(large);
    // A retry with the same key is the client that has come back.
    app.abandoned_tasks.reclaim(&started.task);
    let guard =
        (on_disconnect == OnDisconnectParam::Cancel).then(|| DisconnectGuard::new(&app, &caller, &started.task));
    if wait {
        let response = wait_for_result(&app, &caller.user, &started).await;
        if let Some(guard) = guard {
            guard.disarm();
        }
        return response;
    }
    if let Some(permit) = permit {
        let stream = match started.after {
            Some(after) => Some(start_of_new_run(started.thread.clone(), started.task.clone(), after, format)),
            None => start_of_task(&app.gateway, &caller.user, &started.task, format, None).await?,
        };
        let stream = stream.map(|stream| stream.with_until(until));
        let response = stream_response(&app, &caller, &started.task, stream, permit);
        return Ok(match guard {
            Some(guard) => guard.guard_body(response),
            None => response,
        });
    }
    task_response(&app, &caller.user, &started.task, StatusCode::ACCEPTED).await
}

async fn new_run(app: &App, user: &UserId, request: CreateTaskRequest) -> Result<(NewRun, Uploads), Problem> {
    let mut thread = request.thread_id.map(|id| ThreadId::parse(&id)).transpose()?;
    let unknown = || Problem::new(ErrorCode::UnknownPrevious, "the thread has no such run");
    let previous = request.previous.map(|id| TaskId::parse(&id)).transpose().map_err(|_| unknown())?;
    // A run belongs to one thread.
    if let (Some(previous), None) = (&previous, &thread) {
        thread = Some(app.gateway.engine.run_of_task(user, previous).await?.ok_or_else(unknown)?.thread);
    }
    let (forked, mut uploads) = match &request.share {
        Some(_) if thread.is_some() => {
            return Err(Problem::invalid_field("share", "starts a new thread: omit `thread_id` and `previous`"));
        }
        Some(token) => fork_share(&app.gateway, token).await?,
        None => (NewRun::default(), Uploads::default()),
    };
    let mut input = request.input.into_parts(app.gateway.limits.parts_max)?;
    uploads.extend(Uploads::extract(&app.gateway.attachments, "input", input.iter_mut()).await?);
    let new = NewRun {
        agent: request.model,
        input,
        thread,
        previous: previous.into(),
        tools: check_client_tools(&app.gateway, user, request.tools.into_iter().map(Into::into).collect()).await?,
        metadata: request.metadata,
        on_busy: match request.on_busy {
            OnBusyParam::Enqueue => OnBusy::Enqueue,
            OnBusyParam::Reject => OnBusy::Reject,
            OnBusyParam::Interrupt => OnBusy::Interrupt,
            OnBusyParam::Steer => OnBusy::Steer,
        },
        ..forked
    };
    Ok((new, uploads))
}

fn stream_response(
    app: &App,
    caller: &Caller,
    task: &TaskId,
    stream: Option<StreamStart>,
    permit: StreamPermit,
) -> Response {
    let mut response = match stream {
        Some(stream) => sse::sse_response_with_permit(app, caller, stream, SseStyle::STANDARD, permit),
        None => StatusCode::NO_CONTENT.into_response(),
    };
    if let Ok(location) = HeaderValue::try_from(format!("/v1/tasks/{task}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

async fn wait_for_result(app: &App, user: &UserId, started: &StartedRun) -> Result<Response, Problem> {
    match wait_until_settled(&app.gateway, user, started).await? {
        Settled::Yes => task_response(app, user, &started.task, StatusCode::OK).await,
        Settled::Interrupted => Err(Problem::shutting_down().with_extension("task_id", started.task.as_str())),
    }
}
