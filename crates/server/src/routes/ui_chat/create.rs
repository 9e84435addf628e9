//! `POST /api/chat`: adds a message to a chat, answers what its run waits for, or generates an answer again.

use super::{parse_version, with_stream_header};
use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::mcp_authorization::parse_mcp_credentials;
use crate::problem::Problem;
use crate::query_params;
use crate::sse::{self, SseStyle};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use engine::NewRun;
use gateway::ui_requests::resolve_ui_run;
use gateway::ui_streams::start_of_ui_segment;
use model::json::JsonObject;
use protocol::ui_stream::parse_ui_chat_request;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [ui] = query_params::parse_known_query(&uri, ["ui"])?;
    let version = parse_version(ui.as_deref())?;
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let body_permit = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /api/chat", || json.digest())?;
    let metadata = json.metadata();
    let body: JsonObject = json.into_object()?;
    let mut request = parse_ui_chat_request(&body)?;
    drop(body);
    request.metadata = metadata;
    let stream_permit = sse::acquire_stream_permit(&app, &caller)?;
    let mcp_credentials = parse_mcp_credentials(&app, &headers)?;
    let base = NewRun { idempotency, mcp_credentials, ..NewRun::default() };
    let resolved = Box::pin(resolve_ui_run(&app.gateway, &caller.user, request, base)).await?;
    drop(body_permit);
    let start = start_of_ui_segment(&app.gateway, &caller.user, &resolved, version).await?;
    Ok(with_stream_header(sse::sse_response_with_permit(&app, &caller, start, SseStyle::OPENAI, stream_permit)))
}
