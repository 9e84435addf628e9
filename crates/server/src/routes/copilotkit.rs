//! `/copilotkit`: AG-UI under the paths and in the envelope of CopilotKit's clients, which take this server for their runtime.

use super::agui::{AgUiBody, LateAnswer, connect, stop_run, stream_run};
use super::{AgentPath, ThreadNamePath};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use model::UserId;
use model::json::{ExactObject, ExactValue};
use serde_json::{Map, Value, json};

/// `GET /copilotkit/info`
pub(crate) async fn info(State(app): State<App>, caller: Caller) -> Json<Value> {
    Json(runtime_info(&app, &caller.user))
}

/// `POST /copilotkit/agent/{agent}/run`
pub(crate) async fn run(
    State(app): State<App>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = AgUiBody::read(&app, &caller, &headers, body).await?;
    stream_run(&app, &caller, &headers, &agent, body, LateAnswer::Joins).await
}

/// `POST /copilotkit/agent/{agent}/stop/{thread}`
pub(crate) async fn stop(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(name): ThreadNamePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let json = JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?;
    let members: ExactObject = json.into_object()?;
    stop_response(&app, &caller, &name, &members).await
}

/// `POST /copilotkit`: all of these with one path.
pub(crate) async fn call_method(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let AgUiBody { mut members, memory } = AgUiBody::read(&app, &caller, &headers, body).await?;
    let method = text_member(&members, "method", "method")?;
    let params = object_member(&mut members, "params")?;
    let body = object_member(&mut members, "body")?;
    let agent = || text_member(&params, "agentId", "params.agentId");
    match method.as_str() {
        "info" => Ok(Json(runtime_info(&app, &caller.user)).into_response()),
        "agent/run" => {
            let body = AgUiBody { members: body, memory };
            stream_run(&app, &caller, &headers, &agent()?, body, LateAnswer::Joins).await
        }
        "agent/connect" => connect(&app, &caller, &agent()?, &body).await,
        "agent/stop" => {
            let thread = text_member(&params, "threadId", "params.threadId")?;
            Ok(stop_response(&app, &caller, &thread, &body).await?.into_response())
        }
        _ => Err(Problem::invalid_field("method", "must be `info`, `agent/run`, `agent/connect` or `agent/stop`")),
    }
}

/// Clients that asked for a stop take `interrupt` for the end of their run.
async fn stop_response(
    app: &App,
    caller: &Caller,
    thread: &str,
    members: &ExactObject,
) -> Result<Json<Value>, Problem> {
    let is_stopped = stop_run(app, caller, thread, members).await?.ok_or_else(Problem::not_found)?;
    let interrupt = json!({ "type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED" });
    Ok(Json(match is_stopped {
        true => json!({ "stopped": true, "interrupt": interrupt }),
        false => json!({ "stopped": false }),
    }))
}

fn text_member(members: &ExactObject, name: &str, field: &str) -> Result<String, Problem> {
    match members.get(name) {
        Some(ExactValue::String(text)) if !text.is_empty() => Ok(text.clone()),
        _ => Err(Problem::invalid_field(field, "expected a text that is not empty")),
    }
}

fn object_member(members: &mut ExactObject, name: &str) -> Result<ExactObject, Problem> {
    match members.remove(name) {
        Some(ExactValue::Object(object)) => Ok(object),
        None | Some(ExactValue::Null) => Ok(ExactObject::new()),
        Some(_) => Err(Problem::invalid_field(name, "expected an object")),
    }
}

/// The agents that the user may call, and what a runtime may have and this server does not.
fn runtime_info(app: &App, user: &UserId) -> Value {
    let definitions = app.gateway.engine.ports().definitions.get();
    let agents: Map<String, Value> = definitions
        .callable_agents(user)
        .map(|name| {
            let description = definitions.agents.get(name).map(|agent| agent.description.as_str()).unwrap_or_default();
            let agent = json!({ "name": name, "description": description, "className": "Headwater" });
            (name.to_owned(), agent)
        })
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "agents": agents,
        "audioFileTranscriptionEnabled": false,
        "mode": "sse",
        "threadEndpoints": { "list": false, "inspect": false, "mutations": false, "realtimeMetadata": false },
        "suggestions": false,
        "a2uiEnabled": false,
        "openGenerativeUIEnabled": false,
        "telemetryDisabled": true,
    })
}
