//! OpenAI Responses, and every service that implements it (Azure, vLLM, Open Responses).
//!
//! - `ingest` reads a stream: `event_kind` names its events, `delta_event` parses the most frequent ones, `item_index`
//!   finds the item of an event, `item_builder`, `arguments_buffer` and `part_sequencer` turn it into deltas, `hosted_call` covers the tools that the service runs
//!   itself, and `terminal` the end of the response.
//! - `request` builds the body; `input` is the history in it. With ids present the service enforces the chain reasoning →
//!   message or call, so items go back either unchanged and as a complete group, or as plain content without ids.
//! - `refusal` classifies errors.

mod arguments_buffer;
mod classify_error;
mod delta_event;
mod event_kind;
mod hosted_call;
mod ingest;
mod input;
mod item_builder;
mod item_index;
mod part_sequencer;
mod request;
mod settings;
mod terminal;

pub use classify_error::classify_error;
#[cfg(test)]
pub(crate) use ingest::ResponsesIngest;
pub use ingest::new_ingest;
pub use request::{build_request, unwritten_entries, without_reasoning, write_request};
