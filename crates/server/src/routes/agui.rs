//! `/agui`: runs and threads in AG-UI, for its own clients; `copilotkit` has the same for CopilotKit's.

pub(crate) mod connect;
pub(crate) mod events;
pub(crate) mod run;
pub(crate) mod stop;

use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::mcp_authorization::parse_mcp_credentials;
use crate::problem::Problem;
use crate::sse::{self, SseStyle};
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use engine::NewRun;
use gateway::agui_requests::{check_agui_agent, find_agui_thread, resolve_agui_run, stop_agui_run};
use gateway::agui_streams::{AgUiConnection, AgUiThread, connect_agui_thread, start_of_agui_run};
use gateway::body_budget::BodyReservation;
use gateway::start_run::check_agent_for;
use gateway::stream_limiter::StreamPermit;
use model::error::ErrorCode;
use model::json::{ExactObject, ExactValue};
use protocol::agui::{AgUiRequest, AgUiVersion, InvalidAgUiRequest, parse_agui_request, parse_agui_stop};

/// The response to a client whose answer comes too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateAnswer {
    /// An error says who decided, and how.
    Refused,
    /// The thread as it is: a client that keeps the interrupt after an error could not send anything any more.
    Joins,
}

/// The body of a request, and the memory that it takes until the run has started.
pub(crate) struct AgUiBody {
    pub(crate) members: ExactObject,
    pub(crate) memory: Option<BodyReservation>,
}

impl AgUiBody {
    pub(crate) async fn read(app: &App, caller: &Caller, headers: &HeaderMap, body: Body) -> Result<Self, Problem> {
        let mut json = JsonBody::read(headers, body, &app.limits, &caller.user).await?;
        let memory = json.take_permit();
        Ok(Self { members: json.into_object()?, memory })
    }
}

/// Starts, answers or continues the run that a request means, and streams it.
pub(crate) async fn stream_run(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    agent: &str,
    AgUiBody { members, memory }: AgUiBody,
    late: LateAnswer,
) -> Result<Response, Problem> {
    let request = parse_agui_request(&members).map_err(invalid_request)?;
    drop(members);
    let permit = sse::acquire_stream_permit(app, caller)?;
    let base = NewRun { mcp_credentials: parse_mcp_credentials(app, headers)?, ..NewRun::default() };
    let (version, name) = (request.version, request.thread_id.clone());
    let resolved = Box::pin(resolve_agui_run(&app.gateway, &caller.user, agent, request, base)).await;
    drop(memory);
    let resolved = match resolved {
        Err(rejection)
            if late == LateAnswer::Joins
                && matches!(
                    rejection.code,
                    ErrorCode::AlreadyDecided | ErrorCode::Expired | ErrorCode::NothingPending
                ) =>
        {
            return stream_connection(app, caller, &name, version, permit).await;
        }
        resolved => resolved?,
    };
    let stream = start_of_agui_run(&app.gateway, &caller.user, resolved).await?;
    Ok(sse::sse_response_with_permit(app, caller, stream, SseStyle::PLAIN, permit))
}

/// Streams a thread as it is, and its active run to its end.
pub(crate) async fn connect(
    app: &App,
    caller: &Caller,
    agent: &str,
    members: &ExactObject,
) -> Result<Response, Problem> {
    check_agui_agent(&app.gateway, &caller.user, agent)?;
    check_agent_for(&app.gateway, &caller.user, agent).await?;
    let AgUiRequest { version, thread_id, .. } = parse_connect(members)?;
    let permit = sse::acquire_stream_permit(app, caller)?;
    stream_connection(app, caller, &thread_id, version, permit).await
}

async fn stream_connection(
    app: &App,
    caller: &Caller,
    name: &str,
    version: AgUiVersion,
    permit: StreamPermit,
) -> Result<Response, Problem> {
    let Some(thread) = find_agui_thread(&app.gateway, &caller.user, name).await? else {
        return Ok(sse::empty_sse_response(SseStyle::PLAIN));
    };
    let joined = AgUiThread { version, name, thread: &thread };
    Ok(match connect_agui_thread(&app.gateway, &caller.user, joined).await? {
        AgUiConnection::Settled(frames) => sse::sse_response_with_frames(frames, SseStyle::PLAIN, permit),
        AgUiConnection::Active(stream) => sse::sse_response_with_permit(app, caller, stream, SseStyle::PLAIN, permit),
    })
}

/// A client sends what it would send to start a run; only the thread and the version count.
fn parse_connect(members: &ExactObject) -> Result<AgUiRequest, Problem> {
    let read = members.iter().filter(|(name, _)| matches!(name.as_str(), "threadId" | "protocolVersion"));
    let mut read: ExactObject = read.map(|(name, value)| (name.clone(), value.clone())).collect();
    read.insert("runId".to_owned(), ExactValue::String("connect".to_owned()));
    read.insert("messages".to_owned(), ExactValue::Array(Vec::new()));
    parse_agui_request(&read).map_err(invalid_request)
}

/// Stops the active run of a thread, or the one that the body names. `None` if there is no such thread.
pub(crate) async fn stop_run(
    app: &App,
    caller: &Caller,
    name: &str,
    members: &ExactObject,
) -> Result<Option<bool>, Problem> {
    let run_id = parse_agui_stop(members)?;
    let Some(thread) = find_agui_thread(&app.gateway, &caller.user, name).await? else { return Ok(None) };
    Ok(Some(stop_agui_run(&app.gateway, &caller.user, thread, run_id.as_deref()).await?))
}

pub(crate) fn invalid_request(error: InvalidAgUiRequest) -> Problem {
    match error {
        InvalidAgUiRequest::Field(error) => error.into(),
        InvalidAgUiRequest::UnsupportedVersion { .. } => Problem::new(ErrorCode::UnsupportedVersion, error.to_string()),
        InvalidAgUiRequest::TooLarge { field, .. } => {
            Problem::new(ErrorCode::RequestTooLarge, error.to_string()).with_field(field)
        }
    }
}
