//! What the dialects share in which we are the client of a model provider.
//!
//! Each such dialect is a room with the same three doors: `ingest` turns the provider's stream into deltas, `request`
//! turns a turn's history into the body that the provider wants, and `refused` turns an error answer into a failure.
//! Here is what they agree on: how JSON from outside is read (`json`), what goes wrong (`failure`), the history in the
//! order that every provider demands (`history`), and how a caller's wishes (`wishes`) and an operator's (`options`) get
//! into a request, which may depend on what a model is called (`names`).

pub mod chat;
pub(crate) mod content_parts;
pub(crate) mod failure;
pub(crate) mod history;
pub(crate) mod json;
pub mod messages;
pub(crate) mod model_family;
pub(crate) mod options;
pub mod responses;
pub(crate) mod settings;

use model::model_turn::ModelEvent;

/// Turns one provider's stream into deltas. Pure: it is given whole events, however they were cut on the way.
///
/// 1. Nothing that comes in makes it panic.
/// 2. `End` or `Failed` is emitted once and last; after it, everything is ignored.
/// 3. What it does not know is `Unknown`, as it came: nothing is lost.
/// 4. Only what the provider finished is `Done`. A stream without its terminal event has failed.
pub trait Ingest: Send {
    /// One event of the stream.
    fn on_event(&mut self, event: &sse::SseEvent, out: &mut Vec<ModelEvent>);

    /// The stream ended. Without a terminal event before it the turn has failed (`upstream_incomplete`, retryable).
    fn on_end(&mut self, out: &mut Vec<ModelEvent>);
}

/// What a request builder must know beside the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTarget<'a> {
    /// The model, in the provider's words (without `provider/`).
    pub model: &'a str,
    /// Where the request goes: raw items of this origin go back as they came, those of another never do.
    pub origin: &'a str,
    /// May the provider keep the answer? We have our own log, so the sane value is `false`.
    pub store: bool,
}
