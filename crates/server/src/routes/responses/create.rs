//! `POST /v1/responses`: begins a run, answers what one waits for, or goes on from one.

use super::{ResponseRef, find_response, read_response, start_of_response};
use crate::app::App;
use crate::attachments::inline_images;
use crate::attachments::uploads::{self, Uploads};
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::native_api;
use crate::problem::Problem;
use crate::resolve_run::{self, ConversationRef, ResolvedRun};
use crate::routes::conversations::{self, Conversation};
use crate::routes::parse_idempotency_key;
use crate::sse::{self, SseStyle};
use crate::stream_start;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use engine::NewRun;
use model::UserId;
use model::error::{ErrorCode, truncate_text};
use model::json::JsonObject;
use model::ports::RunRow;
use protocol::client_input::ClientInput;
use protocol::responses::{
    PendingResponse, PendingStatus, ResponsesProjection, ResponsesRequest, parse_responses_request,
};
use serde_json::Value;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut json = JsonBody::read(&headers, body, &app.limits).await?;
    let large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /v1/responses", &json.digest())?;
    let body: JsonObject = json.into_object()?;
    let asked = parse_responses_request(&body).map_err(Problem::from)?;
    drop(body);
    let (stream, background) = (asked.stream, asked.background);
    let conversation = match &asked.conversation {
        Some(id) => Some(conversations::find_conversation(&app, &caller.user, id).await?),
        None => None,
    };
    let room = stream.then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    let (mut said, context, new) = resolve_request(&app, &caller.user, asked, conversation.as_ref()).await?;
    let echo = new.request_echo.clone();
    let luggage = Uploads::extract(&app, "input", uploads::parts_of_client_input(&mut said)).await?;
    let new = NewRun { idempotency, ..new };
    let turn = Box::pin(resolve_run::resolve_run(&app, &caller.user, (said, luggage), context, new)).await?;
    drop(large);
    // Who answers something goes on with a run that has begun: what waits is for the next one.
    if let Some(conversation) = conversation.filter(|_| turn.is_new) {
        conversation.mark_items_read(&app, &caller.user).await?;
    }
    let ResolvedRun { thread, run, segment, .. } = &turn;
    if background && !stream {
        return current_response(&app, &caller.user, &turn, echo).await;
    }
    let place = start_of_response(&app, &caller.user, (run, thread, *segment), 0).await?;
    if let Some(room) = room {
        return Ok(sse::sse_response_with_permit(&app, &caller, place, SseStyle::OPENAI, room));
    }
    stream_start::wait_for_end(&app, &caller.user, place).await?;
    current_response(&app, &caller.user, &turn, echo).await
}

/// The request in our words: what is said, where, and what a run would begin with.
async fn resolve_request(
    app: &App,
    user: &UserId,
    asked: ResponsesRequest,
    conversation: Option<&Conversation>,
) -> Result<(Vec<ClientInput>, ConversationRef, NewRun), Problem> {
    let mut said = asked.input;
    let context = match (conversation, &asked.previous_response_id) {
        (Some(conversation), _) => {
            said.splice(0..0, conversation.pending_input()?);
            ConversationRef::InThread(conversation.thread.clone())
        }
        (None, Some(id)) => ConversationRef::AfterRun(Box::new(find_previous_run(app, user, id).await?)),
        (None, None) => ConversationRef::Unspecified,
    };
    let agent = match (asked.model, &context) {
        (Some(model), _) => model,
        (None, ConversationRef::AfterRun(run)) => run.agent.clone(),
        (None, _) => {
            return Err(Problem::invalid_field("model", "the name of an agent, or `provider/model`, is required"));
        }
    };
    let new = NewRun {
        agent,
        tools: native_api::check_client_tools(asked.tools, &app.limits)?,
        metadata: asked.metadata,
        model_settings: asked.model_settings,
        request_echo: Some(Value::Object(asked.request_echo)),
        ..NewRun::default()
    };
    Ok((said, context, new))
}

/// The run that a response belongs to which is gone on from.
async fn find_previous_run(app: &App, user: &UserId, id: &str) -> Result<RunRow, Problem> {
    let gone = |_| {
        let short = truncate_text(id, 80);
        let detail = format!("Previous response with id '{short}' not found.");
        Problem::new(ErrorCode::PreviousResponseNotFound, detail)
    };
    let (ResponseRef { run, .. }, _) = find_response(app, user, id).await.map_err(gone)?;
    // A run that was given up before it began has said nothing to go on from.
    if run.first_seq.is_none() && run.status.is_terminal() { Err(gone(Problem::not_found())) } else { Ok(run) }
}

/// The response as it is now.
async fn current_response(
    app: &App,
    user: &UserId,
    turn: &ResolvedRun,
    echo: Option<Value>,
) -> Result<Response, Problem> {
    let run = app.engine.run_of_task(user, &turn.run).await?.ok_or_else(Problem::not_found)?;
    let found = ResponseRef { run, segment: turn.segment };
    let object = match read_response(app, user, &found).await? {
        Some(read) => read.object,
        // The answer is written down, and the run has not gone on yet.
        None => {
            let RunRow { id, agent, created_at, .. } = &found.run;
            let asked = PendingResponse {
                agent,
                requested_at: *created_at,
                status: PendingStatus::Queued,
                request_echo: echo.as_ref(),
            };
            ResponsesProjection::pending_object(id, turn.segment, asked)
        }
    };
    Ok(inline_images::json_response_with_images(app, user, &found.run.thread, &object))
}
