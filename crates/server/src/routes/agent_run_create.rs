//! `POST /api/v1/agent/runs`: sends a message to an agent.

use super::AgentRunNames;
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use crate::sse::{self, SseStyle};
use crate::stream_limiter::StreamPermit;
use crate::stream_request::prefers_event_stream;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use engine::{NewRun, StartedRun};
use gateway::attachments::uploads::Uploads;
use gateway::start_run::{choose_agent, start_run};
use gateway::thread_names::{NamedThread, reserve_named_thread, start_of_agent_runs};
use model::content::{ContentPart, FileRef};
use model::event::ClientIds;
use model::json::JsonObject;
use model::ports::AliasData;
use model::{ThreadId, UserId};
use protocol::agent_runs::AGENT_RUNS_PROJECTION;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct NewAgentRun {
    message: String,
    /// The thread to continue. A new name of the client's own starts a thread.
    thread_id: Option<String>,
    /// By default the agent of the thread's last run, else the one that no other agent calls.
    agent: Option<String>,
    // Maps, because serde accepts a list for a struct.
    #[serde(default)]
    #[schemars(with = "Vec<Attachment>")]
    attachments: Vec<JsonObject>,
    #[serde(default)]
    metadata: JsonObject,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AttachmentRef")]
pub(crate) struct Attachment {
    bucket: String,
    path: String,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let mut json = JsonBody::read(&headers, body, &app.limits).await?;
    let large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /api/v1/agent/runs", &json.digest())?;
    let request: NewAgentRun = json.into_object()?;
    let name = request.thread_id.clone();
    let new = new_run(&app, &caller.user, request).await?;
    let permit = prefers_event_stream(&headers).then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    let started = start_run(&app.gateway, &caller.user, NewRun { idempotency, ..new }, Uploads::default()).await?;
    drop(large);
    let name = name.unwrap_or_else(|| started.thread.to_string());
    run_response(&app, &caller, permit, &name, &started).await
}

async fn new_run(app: &App, user: &UserId, request: NewAgentRun) -> Result<NewRun, Problem> {
    let NewAgentRun { message, thread_id, agent, attachments, metadata } = request;
    let input = parse_input(app, message, attachments)?;
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
        client: Some(ClientIds { protocol: AGENT_RUNS_PROJECTION.to_owned(), thread_id: client_name, run_id: None }),
        ..NewRun::default()
    })
}

fn parse_input(app: &App, message: String, attachments: Vec<JsonObject>) -> Result<Vec<ContentPart>, Problem> {
    let max = app.gateway.limits.parts_max.saturating_sub(1);
    if attachments.len() > max {
        return Err(Problem::invalid_field(
            "attachments",
            format!("{} files; the maximum is {max}", attachments.len()),
        ));
    }
    let files = attachments.into_iter().map(|file| serde_json::from_value(Value::Object(file)));
    let attachments: Result<Vec<Attachment>, _> = files.collect();
    let attachments = attachments.map_err(|error| Problem::invalid_field("attachments", error))?;
    if attachments.iter().any(|file| file.bucket.is_empty() || file.path.is_empty()) {
        return Err(Problem::invalid_field("attachments", "a file needs a `bucket` and a `path`"));
    }
    if message.is_empty() && attachments.is_empty() {
        return Err(Problem::invalid_field("message", "must not be empty"));
    }
    let text = Some(message).filter(|message| !message.is_empty()).map(ContentPart::text);
    let files = attachments.into_iter().map(|Attachment { bucket, path }| ContentPart::File {
        file: FileRef { bucket: Some(bucket), path: Some(path), ..FileRef::default() },
    });
    Ok(text.into_iter().chain(files).collect())
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
