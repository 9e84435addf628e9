//! The three wire dialects that model providers speak, with this server as their client. Pure: no I/O and no clock.
//!
//! Each dialect is a folder (`responses`, `messages`, `chat`) with the same three entry files: `ingest` turns the provider's
//! stream into model events, `request` turns the history of a turn into a request body, and `refusal` classifies the
//! provider's errors. What they share:
//!
//! - `provider_error`: the table of error kinds with their codes, and how error objects are read;
//! - `settings`: the table of model settings with each dialect's field names; `options`: the operator's overrides;
//! - `history`: the history in an order that every provider accepts; `request_list`: the messages of a request as text;
//!   `written_history`: those of earlier turns as the last request has written them;
//! - `content_parts`, `generated_image`, `tool_name`, `model_family`: what a request has to know about its parts;
//! - `json`: reading JSON from outside; `delta_json`: reading deltas without a JSON tree.

pub mod chat;
mod content_parts;
mod delta_json;
#[cfg(test)]
mod delta_tests;
pub mod generated_image;
mod history;
mod json;
pub mod messages;
mod model_family;
mod options;
mod provider_error;
mod request_list;
pub mod responses;
mod settings;
mod tool_name;
mod written_history;

use model::model_turn::ModelEvent;

/// Turns one provider's stream into model events. Pure: it gets complete SSE events, whatever their chunks were.
///
/// 1. It panics on no input.
/// 2. It emits `End` or `Failed` once and last, and ignores everything after it.
/// 3. It passes on what it does not know as `Unknown`, unchanged: nothing is lost.
/// 4. Only what the provider finished is `Done`. A stream without its terminal event has failed.
pub trait Ingest: Send {
    /// The next event of the stream.
    fn on_event(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>);

    /// The stream ended. Without a terminal event before it, the turn has failed (`upstream_incomplete`, retryable).
    fn on_end(&mut self, out: &mut Vec<ModelEvent>);
}

/// What a request builder has to know besides the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTarget<'a> {
    /// The provider's name of the model (without `provider/`).
    pub model: &'a str,
    /// Where the request goes. Raw items go back unchanged to the origin that sent them, and to no other.
    pub origin: &'a str,
    /// Whether the provider may store the response. The server has its own log, so this is normally `false`.
    pub store: bool,
}
