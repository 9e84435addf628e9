//! `GET /v1/responses/{id}`: the current state of a response, or its stream.

use super::ResponsePath;
use crate::app::App;
use crate::auth::Caller;
use crate::json_response::json_response_with_images;
use crate::problem::Problem;
use crate::query_params::{parse_decimal, parse_known_query};
use crate::sse::{self, SseStyle};
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::Response;
use gateway::response_stream::find_response_stream;
use gateway::responses::find_response;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
    method: Method,
    uri: Uri,
) -> Result<Response, Problem> {
    let [stream, after] = parse_known_query(&uri, ["stream", "starting_after"])?;
    let stream = match stream.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Problem::invalid_param("stream", "must be true or false")),
    };
    let after = after.map(|text| parse_sequence_number(&text)).transpose()?;
    if !stream {
        let (response, snapshot) = find_response(&app.gateway, &caller.user, &id).await?;
        return Ok(json_response_with_images(&app, &caller.user, &response.run.thread, snapshot.object_json()));
    }
    let skip = after.map_or(0, |after| after.saturating_add(1));
    let stream = find_response_stream(&app.gateway, &caller.user, &id, skip).await?;
    if method == Method::HEAD {
        return Ok(sse::sse_head());
    }
    sse::sse_response_with_style(&app, &caller, stream, SseStyle::OPENAI)
}

fn parse_sequence_number(text: &str) -> Result<u64, Problem> {
    parse_decimal(text).ok_or_else(|| Problem::invalid_param("starting_after", "must be the number of an event"))
}
