//! `POST /v1/chat/completions`: a run in the format of OpenAI's Chat Completions API.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::sse::SseStyle;
use crate::stateless::{self, StatelessProtocol};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::chat::{ChatProjection, parse_chat_request};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let protocol = StatelessProtocol {
        route: "POST /v1/chat/completions",
        sse_style: SseStyle::OPENAI,
        parse_request: parse_chat_request,
        new_response: |run, segment, include_usage| ChatProjection::new(run, segment, include_usage.into()),
        object: |response| response.object().into(),
        failure: ChatProjection::failure,
        is_over: ChatProjection::is_finished,
    };
    Box::pin(stateless::handle(app, caller, headers, body, protocol)).await
}
