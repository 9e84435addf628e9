//! `POST /v1/messages`: a run in the format of Anthropic's Messages API.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::sse::SseStyle;
use crate::stateless::{self, StatelessProtocol};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::messages::{MessagesProjection, parse_messages_request};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let protocol = StatelessProtocol {
        route: "POST /v1/messages",
        sse_style: SseStyle::PLAIN,
        parse_request: parse_messages_request,
        // Every message includes its usage.
        new_response: |run, segment, _| MessagesProjection::new(run, segment),
        object: MessagesProjection::object,
        failure: MessagesProjection::failure,
        is_over: MessagesProjection::is_finished,
    };
    Box::pin(stateless::handle(app, caller, headers, body, protocol)).await
}
