//! `POST /v1/responses/compact`: replaces a conversation by a summary that the client keeps.

use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::json_response::LongJson;
use crate::problem::Problem;
use crate::sse;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use gateway::compaction::{CompactionEnd, compact_conversation};
use gateway::stream_start::StreamEnd;
use model::json::JsonObject;
use protocol::responses::parse_compact_request;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let _body_permit = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, "POST /v1/responses/compact", || json.digest())?;
    let body: JsonObject = json.into_object()?;
    let request = parse_compact_request(&body)?;
    drop(body);
    // Who waits takes a stream's place.
    let _stream_permit = sse::acquire_stream_permit(&app, &caller)?;
    match Box::pin(compact_conversation(&app.gateway, &caller.user, request, idempotency)).await? {
        CompactionEnd::Complete(object) => Ok(LongJson(object).into_response()),
        CompactionEnd::Interrupted => {
            app.check_stream_end(StreamEnd::Interrupted)?;
            Err(Problem::internal())
        }
    }
}
