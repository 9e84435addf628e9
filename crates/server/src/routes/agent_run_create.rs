//! `POST /api/v1/agent/runs`: somebody says something to an agent.

use super::{agent_threads, parse_idempotency_key};
use crate::app::App;
use crate::attachments::uploads::Uploads;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use crate::sse::{self, SseStyle};
use crate::start_run::{entry_agents, last_agent_of_thread, start_run};
use crate::stream_limiter::StreamPermit;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use engine::{NewRun, StartedRun};
use model::content::{ContentPart, FileRef};
use model::event::ClientIds;
use model::json::JsonObject;
use model::{ThreadId, UserId};
use protocol::agent_runs::AGENT_RUNS_PROJECTION;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Request {
    message: String,
    thread_id: Option<String>,
    agent: Option<String>,
    /// Maps, because serde would take a list for a struct.
    #[serde(default)]
    attachments: Vec<JsonObject>,
    #[serde(default)]
    metadata: JsonObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attachment {
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
    let request: Request = json.into_object()?;
    let name = request.thread_id.clone();
    let new = new_run(&app, &caller.user, request).await?;
    let room = accepts_event_stream(&headers).then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    let started = start_run(&app, &caller.user, NewRun { idempotency, ..new }, Uploads::default()).await?;
    drop(large);
    let name = name.unwrap_or_else(|| started.thread.to_string());
    run_response(&app, &caller, room, &name, &started).await
}

async fn new_run(app: &App, user: &UserId, request: Request) -> Result<NewRun, Problem> {
    let Request { message, thread_id, agent, attachments, metadata } = request;
    let input = parse_input(app, message, attachments)?;
    let thread = match &thread_id {
        None => None,
        Some(id) => match ThreadId::parse(id) {
            Ok(thread) => Some(thread),
            Err(_) => Some(agent_threads::reserve_named_thread(app, user, id).await?),
        },
    };
    let agent = match agent {
        Some(agent) => agent,
        None => default_agent(app, user, thread.as_ref()).await?,
    };
    let own_name = thread_id.filter(|id| ThreadId::parse(id).is_err());
    Ok(NewRun {
        agent,
        input,
        thread,
        metadata,
        create_if_missing: own_name.is_some(),
        client: Some(ClientIds { protocol: AGENT_RUNS_PROJECTION.to_owned(), thread_id: own_name, run_id: None }),
        ..NewRun::default()
    })
}

fn parse_input(app: &App, message: String, attachments: Vec<JsonObject>) -> Result<Vec<ContentPart>, Problem> {
    let most = app.limits.input_parts_max.saturating_sub(1);
    if attachments.len() > most {
        return Err(Problem::invalid_field(
            "attachments",
            format!("{} files; the maximum is {most}", attachments.len()),
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

/// Who answers when nobody is named: in a conversation whoever did last, else the one agent whom no other agent asks or
/// hands over to. Where there are several of those, the client has to choose.
async fn default_agent(app: &App, user: &UserId, thread: Option<&ThreadId>) -> Result<String, Problem> {
    let definitions = &app.engine.ports().definitions;
    if let Some(thread) = thread
        && let Some(agent) = last_agent_of_thread(app, user, thread).await?
    {
        return Ok(agent);
    }
    let first = entry_agents(definitions);
    match first.as_slice() {
        [only] => Ok((*only).to_owned()),
        _ => {
            let agents: Vec<String> = definitions.agents.keys().cloned().collect();
            Err(Problem::invalid_field("agent", "there are several agents; name one").with_extension("agents", agents))
        }
    }
}

async fn run_response(
    app: &App,
    caller: &Caller,
    room: Option<StreamPermit>,
    name: &str,
    started: &StartedRun,
) -> Result<Response, Problem> {
    let mut response = if let Some(room) = room {
        let place =
            agent_threads::start_of_agent_runs(app, &caller.user, (name, &started.thread), None, Some(&started.task))
                .await?;
        sse::sse_response_with_permit(app, caller, place, SseStyle::STANDARD, room)
    } else {
        let names = json!({ "threadId": name, "runId": started.task });
        (StatusCode::ACCEPTED, axum::Json(names)).into_response()
    };
    if let Ok(location) = HeaderValue::try_from(format!("/api/v1/agent/runs/{name}/events")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Only who names the type wants a stream: `*/*` is what everybody sends.
fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|range| {
        let mut pieces = range.split(';').map(str::trim);
        let kind = pieces.next().unwrap_or_default();
        let refused = pieces.any(|piece| matches!(piece, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        kind.eq_ignore_ascii_case("text/event-stream") && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_given_to_whoever_names_it() {
        let asks = |accept: &str| {
            let value = HeaderValue::from_str(accept).unwrap();
            accepts_event_stream(&HeaderMap::from_iter([(header::ACCEPT, value)]))
        };
        for yes in ["text/event-stream", "Text/Event-Stream;q=0.5", "application/json, text/event-stream"] {
            assert!(asks(yes), "{yes}");
        }
        for no in ["", "*/*", "application/json", "text/*", "text/event-stream;q=0", "text/event-stream; q=0.00"] {
            assert!(!asks(no), "{no}");
        }
        assert!(!accepts_event_stream(&HeaderMap::new()));
    }
}
