//! `POST /v1/responses`: starts a run, answers its pending requests, or continues it.

use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::json_response::json_response_with_images;
use crate::mcp_authorization::{add_mcp_credential, parse_mcp_credentials};
use crate::problem::Problem;
use crate::sse::{self, SseStyle};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use engine::NewRun;
use gateway::attachments::uploads::{self, Uploads};
use gateway::client_tools::check_client_tools;
use gateway::conversations::{Conversation, find_conversation};
use gateway::mcp_credentials::NamedMcpServer;
use gateway::resolve_run::{ConversationRef, RequestInput, ResolvedRun, resolve_run};
use gateway::responses::{find_previous_response, find_unstored_response, read_resolved_response, start_of_response};
use gateway::stream_start::wait_for_end;
use model::UserId;
use model::json::JsonObject;
use model::mcp_credentials::McpCredentials;
use protocol::client_input::ClientInput;
use protocol::responses::{RequestedMcpServer, ResponsesRequest, parse_responses_request};
use serde_json::Value;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let body_permit = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /v1/responses", || json.digest())?;
    let metadata = json.metadata();
    let body: JsonObject = json.into_object()?;
    let request = parse_responses_request(&body)?.with_metadata(metadata);
    drop(body);
    let mcp_credentials = read_mcp_credentials(&app, &headers, &request)?;
    let (stream, background) = (request.stream, request.background);
    // Who waits for the object takes a stream's place.
    let stream_permit = (stream || !background).then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    let base = NewRun { idempotency, mcp_credentials, ..NewRun::default() };
    let resolving = resolve_response(&app, &caller.user, request, PreviousResponse::Stored, base);
    let (resolved, echo) = Box::pin(resolving).await?;
    drop(body_permit);
    if let Some(permit) = stream_permit {
        let start = start_of_response(&app.gateway, &caller.user, &resolved, 0).await?;
        if stream {
            return Ok(sse::sse_response_with_permit(&app, &caller, start, SseStyle::OPENAI, permit));
        }
        app.check_stream_end(wait_for_end(&app.gateway, &caller.user, &resolved.run, start).await?)?;
    }
    let object = read_resolved_response(&app.gateway, &caller.user, &resolved, echo.as_ref()).await?;
    Ok(json_response_with_images(&app, &caller.user, &resolved.thread, object))
}

/// Which responses a `previous_response_id` may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreviousResponse {
    /// Those that are stored.
    Stored,
    /// The one that it names, because the connection has made it.
    OfConnection,
}

/// Starts or continues the run that answers a request; `base` has its key and its credentials. Returns with it the fields that
/// its response repeats.
pub(crate) async fn resolve_response(
    app: &App,
    user: &UserId,
    request: ResponsesRequest,
    previous: PreviousResponse,
    base: NewRun,
) -> Result<(ResolvedRun, Option<Value>), Problem> {
    let conversation = match &request.conversation {
        Some(id) => Some(find_conversation(&app.gateway, user, id).await?),
        None => None,
    };
    let (mut items, context, new) = resolve_request(app, user, request, conversation.as_ref(), previous, base).await?;
    let echo = new.request_echo.clone();
    let parts = uploads::parts_of_client_input(&mut items);
    let uploads = Uploads::extract(&app.gateway.attachments, "input", parts).await?;
    let input = RequestInput { items, uploads };
    let resolved = Box::pin(resolve_run(&app.gateway, user, input, context, new)).await?;
    // An answer resumes a run that has started: the conversation's items wait for the next one.
    if let Some(conversation) = conversation.filter(|_| resolved.is_new) {
        conversation.mark_items_read(&app.gateway, user).await?;
    }
    Ok((resolved, echo))
}

/// From the header, and from the tools of the request.
pub(crate) fn read_mcp_credentials(
    app: &App,
    headers: &HeaderMap,
    request: &ResponsesRequest,
) -> Result<McpCredentials, Problem> {
    let mut credentials = parse_mcp_credentials(app, headers)?;
    for RequestedMcpServer { field, label, url, authorization } in &request.mcp_servers {
        let server = NamedMcpServer { field, label, url: url.as_deref(), token: authorization.as_deref() };
        add_mcp_credential(app, headers, &mut credentials, server)?;
    }
    Ok(credentials)
}

/// The input items of a request, the conversation that it names, and the run that it would start.
async fn resolve_request(
    app: &App,
    user: &UserId,
    request: ResponsesRequest,
    conversation: Option<&Conversation>,
    previous: PreviousResponse,
    base: NewRun,
) -> Result<(Vec<ClientInput>, ConversationRef, NewRun), Problem> {
    let mut items = request.input;
    let context = match (conversation, &request.previous_response_id) {
        (Some(conversation), _) => {
            items.splice(0..0, conversation.pending_input()?);
            ConversationRef::InThread(conversation.thread.clone())
        }
        (None, Some(id)) => match previous {
            PreviousResponse::Stored => find_previous_response(&app.gateway, user, id).await?,
            PreviousResponse::OfConnection => find_unstored_response(&app.gateway, user, id).await?,
        },
        (None, None) => ConversationRef::Unspecified,
    };
    let agent = match (request.model, &context) {
        (Some(model), _) => model,
        (None, ConversationRef::AfterRun(run)) => run.agent.clone(),
        (None, _) => {
            return Err(Problem::invalid_field("model", "the name of an agent, or `provider/model`, is required"));
        }
    };
    let new = NewRun {
        agent,
        tools: check_client_tools(&app.gateway, user, request.tools).await?,
        metadata: request.metadata,
        model_settings: request.model_settings,
        request_echo: Some(Value::Object(request.request_echo)),
        ..base
    };
    Ok((items, context, new))
}
