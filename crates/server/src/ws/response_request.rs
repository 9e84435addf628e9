//! The messages of a Responses socket: `response.create`, and the envelope of an error.

use crate::error_format::openai_error_envelope;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use model::error::ErrorCode;
use model::json::JsonObject;
use protocol::client_input::ClientInput;
use protocol::responses::{ResponsesRequest, parse_responses_request};
use serde_json::Value;
use std::collections::VecDeque;

/// The responses that a socket remembers at most.
const REMEMBERED_MAX: usize = 64;

/// What a message asks for.
pub(super) enum CreateMessage {
    Generate(ResponsesRequest),
    /// `generate: false`: a response without output, whose id the next request names.
    Prewarm(ResponsesRequest),
}

/// Parses a message: the body of `POST /v1/responses`, and a type.
pub(super) fn parse_create_message(json: JsonBody) -> Result<CreateMessage, Problem> {
    let metadata = json.metadata();
    let body: JsonObject = json.into_object()?;
    match body.get("type") {
        Some(Value::String(kind)) if kind == "response.create" => {}
        _ => return Err(Problem::invalid_field("type", "expected `response.create`")),
    }
    let is_absent = |name: &str| body.get(name).is_none_or(Value::is_null);
    // Every response is streamed, and openai-agents says so.
    if !is_absent("stream") && body.get("stream") != Some(&Value::Bool(true)) {
        return Err(Problem::invalid_field("stream", "a socket streams every response: leave it out"));
    }
    if !is_absent("background") && body.get("background") != Some(&Value::Bool(false)) {
        return Err(Problem::invalid_field("background", "a socket has no background responses: leave it out"));
    }
    let is_prewarm = match body.get("generate") {
        None | Some(Value::Null | Value::Bool(true)) => false,
        Some(Value::Bool(false)) => true,
        Some(_) => return Err(Problem::invalid_field("generate", "expected true or false")),
    };
    for name in ["stream_options", "stream_id"] {
        if !is_absent(name) {
            return Err(Problem::invalid_field(name, "has no meaning on this socket: leave it out"));
        }
    }
    let request = parse_responses_request(&body)?.with_metadata(metadata);
    Ok(if is_prewarm { CreateMessage::Prewarm(request) } else { CreateMessage::Generate(request) })
}

/// The input of a request that generated nothing. The next request that names it goes on with it.
pub(super) struct PrewarmedInput {
    pub(super) id: String,
    input: Vec<ClientInput>,
    previous_response_id: Option<String>,
}

impl PrewarmedInput {
    pub(super) fn new(id: String, request: ResponsesRequest) -> Self {
        Self { id, input: request.input, previous_response_id: request.previous_response_id }
    }

    /// The request with this input before its own.
    pub(super) fn prepend_to(&self, mut request: ResponsesRequest) -> ResponsesRequest {
        request.input.splice(0..0, self.input.iter().cloned());
        ResponsesRequest { previous_response_id: self.previous_response_id.clone(), ..request }
    }
}

pub(super) fn error_envelope(problem: Problem) -> String {
    openai_error_envelope(&problem.into_parts().0)
}

pub(super) fn too_many_waiting(max: usize) -> Problem {
    Problem::new(ErrorCode::TooManyRequests, format!("{max} requests wait for their turn, which is the maximum"))
}

pub(super) fn connection_limit_reached() -> Problem {
    Problem::new(ErrorCode::SocketExpired, "this socket has reached its maximum age: open a new one")
}

/// The ids of the responses that a socket has made. Only these can be continued if they were not stored.
#[derive(Debug, Default)]
pub(super) struct RememberedResponses(VecDeque<String>);

impl RememberedResponses {
    pub(super) fn contains(&self, id: &str) -> bool {
        self.0.iter().any(|known| known == id)
    }

    pub(super) fn insert(&mut self, id: String) {
        self.remove(&id);
        if self.0.len() >= REMEMBERED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(id);
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.0.retain(|known| known != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_responses_are_forgotten_first() {
        let mut remembered = RememberedResponses::default();
        for n in 0..=REMEMBERED_MAX {
            remembered.insert(format!("resp_{n}"));
        }
        assert!(!remembered.contains("resp_0") && remembered.contains("resp_1"));
        remembered.remove("resp_1");
        remembered.insert("resp_2".to_owned());
        assert!(!remembered.contains("resp_1") && remembered.contains("resp_2"));
        assert_eq!(remembered.0.len(), REMEMBERED_MAX - 1);
    }
}
