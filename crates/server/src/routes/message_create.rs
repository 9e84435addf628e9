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
use protocol::stateless::RunFailure;
use serde_json::Value;

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
    };
    Box::pin(stateless::handle(app, caller, headers, body, protocol)).await
}

impl stateless::StatelessResponse for MessagesProjection {
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
