//! `POST /api/v1/agent/runs`: sends a message to an agent.

use super::AgentRunNames;
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::mcp_authorization::parse_mcp_credentials;
use crate::problem::Problem;
use crate::query_params;
use crate::sse::{self, SseStyle};
use crate::stream_request::prefers_event_stream;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use engine::{NewRun, StartedRun};
use gateway::attachments::uploads::Uploads;
use gateway::start_run::{choose_agent, start_run};
use gateway::stream_limiter::StreamPermit;
use gateway::thread_names::{NamedThread, reserve_named_thread, start_of_agent_runs};
use model::event::ClientIds;
use model::ports::AliasData;
use model::{ThreadId, UserId};
use protocol::agent_runs::{AGENT_RUNS_PROJECTION, CreateAgentRunRequest};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /api/v1/agent/runs", || json.digest())?;
    let request: CreateAgentRunRequest = json.into_object()?;
    let name = request.thread_id.clone();
    let new = new_run(&app, &caller.user, request).await?;
    let permit = prefers_event_stream(&headers).then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    let new = NewRun { idempotency, mcp_credentials: parse_mcp_credentials(&app, &headers)?, ..new };
    let started = start_run(&app.gateway, &caller.user, new, Uploads::default()).await?;
    drop(large);
    let name = name.unwrap_or_else(|| started.thread.to_string());
    run_response(&app, &caller, permit, &name, &started).await
}

async fn new_run(app: &App, user: &UserId, mut request: CreateAgentRunRequest) -> Result<NewRun, Problem> {
    let input = request.take_input(app.gateway.limits.parts_max)?;
    let CreateAgentRunRequest { thread_id, agent, metadata, .. } = request;
    let thread = match &thread_id {
        None => None,
        Some(id) => match ThreadId::parse(id) {
            Ok(thread) => Some(thread),
            Err(_) => Some(reserve_named_thread(&app.gateway, user, AliasData::AgentRun, id, "threadId").await?),
        },
    };
    let agent = match agent {
        Some(agent) => agent,
        None => choose_agent(&app.gateway, user, thread.as_ref()).await?,
    };
    let client_name = thread_id.filter(|id| ThreadId::parse(id).is_err());
    Ok(NewRun {
        agent,
        input,
        thread,
        metadata,
        create_if_missing: client_name.is_some(),
        client: Some(ClientIds {
            protocol: AGENT_RUNS_PROJECTION.to_owned(),
            thread_id: client_name,
            run_id: None,
            message_ids: Vec::new(),
        }),
        ..NewRun::default()
    })
}

async fn run_response(
    app: &App,
    caller: &Caller,
    permit: Option<StreamPermit>,
    name: &str,
    started: &StartedRun,
) -> Result<Response, Problem> {
    let mut response = if let Some(permit) = permit {
        let thread = NamedThread { name, thread: &started.thread };
        let stream = start_of_agent_runs(&app.gateway, &caller.user, thread, None, Some(&started.task)).await?;
        sse::sse_response_with_permit(app, caller, stream, SseStyle::STANDARD, permit)
    } else {
        let names = AgentRunNames { run_id: &started.task, thread_id: name };
        (StatusCode::ACCEPTED, axum::Json(names)).into_response()
    };
    if let Ok(location) = HeaderValue::try_from(format!("/api/v1/agent/runs/{name}/events")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}
