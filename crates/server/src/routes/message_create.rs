//! `POST /v1/messages`: a run, as clients of Anthropic's Messages know it.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::sse::Manners;
use crate::stateless::{self, Dialect};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::messages::{Answer, asked};
use protocol::stateless::Failure;
use serde_json::Value;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let dialect = Dialect {
        route: "POST /v1/messages",
        manners: Manners::PLAIN,
        asked,
        // What it cost is part of every message.
        answer: |run, segment, _| Answer::new(run, segment),
    };
    Box::pin(stateless::handle(app, caller, headers, body, dialect)).await
}

impl stateless::Answer for Answer {
    fn object(&self) -> Value {
        Self::object(self)
    }

    fn failure(&self) -> Option<&Failure> {
        Self::failure(self)
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }
}
