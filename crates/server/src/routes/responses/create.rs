//! `POST /v1/responses`: begins a run, answers what one waits for, or goes on from one.

use super::{Found, find, place, read};
use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::converse::{self, Context, Turn};
use crate::files::inline;
use crate::files::intake::{self, Luggage};
use crate::problem::Problem;
use crate::routes::conversations::{self, Conversation};
use crate::routes::idempotency;
use crate::sse::{self, Manners};
use crate::watch;
use crate::wire;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use engine::NewRun;
use model::UserId;
use model::block::JsonObject;
use model::ports::RunRow;
use protocol::responses::{Asked, Segment, Unbegun, asked};
use protocol::said::Said;
use serde_json::Value;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut json = Json::read(&headers, body, &app.limits).await?;
    let large = json.room();
    let idempotency = idempotency(&headers, "POST /v1/responses", &json.digest())?;
    let body: JsonObject = json.object()?;
    let asked = asked(&body).map_err(|wrong| Problem::invalid_body(wrong.to_string()))?;
    drop(body);
    let (stream, background) = (asked.stream, asked.background);
    let conversation = match &asked.conversation {
        Some(id) => Some(conversations::find(&app, &caller.user, id).await?),
        None => None,
    };
    let room = stream.then(|| sse::room(&app, &caller)).transpose()?;
    let (mut said, context, new) = told(&app, &caller.user, asked, conversation.as_ref()).await?;
    let echo = new.request_echo.clone();
    let luggage = Luggage::unpack(&app, "input", intake::of_said(&mut said)).await?;
    let new = NewRun { idempotency, ..new };
    let turn = Box::pin(converse::take(&app, &caller.user, (said, luggage), context, new)).await?;
    drop(large);
    // Who answers something goes on with a run that has begun: what waits is for the next one.
    if let Some(conversation) = conversation.filter(|_| turn.is_new) {
        conversation.was_read(&app, &caller.user).await?;
    }
    let Turn { thread, run, segment, .. } = &turn;
    if background && !stream {
        return shown(&app, &caller.user, &turn, echo).await;
    }
    let place = place(&app, &caller.user, (run, thread, *segment), 0).await?;
    if let Some(room) = room {
        return Ok(sse::response_in(&app, &caller, place, Manners::OPENAI, room));
    }
    watch::ended(&app, &caller.user, place).await?;
    shown(&app, &caller.user, &turn, echo).await
}

/// The request in our words: what is said, where, and what a run would begin with.
async fn told(
    app: &App,
    user: &UserId,
    asked: Asked,
    conversation: Option<&Conversation>,
) -> Result<(Vec<Said>, Context, NewRun), Problem> {
    let mut said = asked.said;
    let context = match (conversation, &asked.previous_response_id) {
        (Some(conversation), _) => {
            said.splice(0..0, conversation.waiting()?);
            Context::Thread(conversation.thread.clone())
        }
        (None, Some(id)) => Context::After(Box::new(previous(app, user, id).await?)),
        (None, None) => Context::Open,
    };
    let agent = match (asked.model, &context) {
        (Some(model), _) => model,
        (None, Context::After(run)) => run.agent.clone(),
        (None, _) => {
            return Err(Problem::invalid_body("`model`: the name of an agent, or `provider/model`, is needed"));
        }
    };
    let new = NewRun {
        agent,
        tools: wire::declared(asked.tools, &app.limits)?,
        metadata: asked.metadata,
        model_settings: asked.wishes,
        request_echo: Some(Value::Object(asked.echo)),
        ..NewRun::default()
    };
    Ok((said, context, new))
}

/// The run that a response belongs to which is gone on from.
async fn previous(app: &App, user: &UserId, id: &str) -> Result<RunRow, Problem> {
    let gone = |_| {
        let short: String = id.chars().take(80).collect();
        let detail = format!("Previous response with id '{short}' not found.");
        Problem::new(StatusCode::BAD_REQUEST, "previous_response_not_found", detail)
    };
    let (Found { run, .. }, _) = find(app, user, id).await.map_err(gone)?;
    // A run that was given up before it began has said nothing to go on from.
    if run.first_seq.is_none() && run.status.is_terminal() { Err(gone(Problem::not_found())) } else { Ok(run) }
}

/// The response as it is now.
async fn shown(app: &App, user: &UserId, turn: &Turn, echo: Option<Value>) -> Result<Response, Problem> {
    let run = app.engine.run_of_task(user, &turn.run).await?.ok_or_else(Problem::not_found)?;
    let found = Found { run, segment: turn.segment };
    let object = match read(app, user, &found).await? {
        Some(read) => read.object,
        // The answer is written down, and the run has not gone on yet.
        None => {
            let RunRow { id, agent, created_at, .. } = &found.run;
            let asked = Unbegun { agent, at: *created_at, given_up: false, echo: echo.as_ref() };
            Segment::unbegun(id, turn.segment, asked)
        }
    };
    Ok(inline::body(app, user, &found.run.thread, &object))
}
