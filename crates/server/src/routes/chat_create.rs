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
use protocol::stateless::RunFailure;
use serde_json::Value;

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
    };
    Box::pin(stateless::handle(app, caller, headers, body, protocol)).await
}

impl stateless::StatelessResponse for ChatProjection {
    fn object(&self) -> Value {
        Self::object(self)
    }

    fn failure(&self) -> Option<&RunFailure> {
        Self::failure(self)
    }

    fn is_over(&self) -> bool {
        Self::is_finished(self)
    }
}
