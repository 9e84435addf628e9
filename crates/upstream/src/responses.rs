//! OpenAI Responses, and every service that speaks it (Azure, vLLM, Open Responses), as its client.
//!
//! `ingest` reads a stream: `place` finds the item that an event means, `item` and `part` say what becomes of it, `hosted`
//! is what the service runs itself, `terminal` how the response ends. `request` builds the body that goes out; `input` is
//! the history in it and knows the reasoning-item trap: with ids present the service enforces the chain reasoning →
//! message or call, so items go back either as a whole group, as they came, or as plain text without ids. `drawn` finds the
//! image in an item, for callers that keep images elsewhere. `refusal` reads an error response.

mod event_kind;
pub mod generated_image;
mod hosted_call;
mod ingest;
mod input;
mod item_builder;
mod item_index;
mod part_sequencer;
mod refusal;
mod request;
mod settings;
mod terminal;

pub use ingest::new_ingest;
pub use refusal::classify_error;
pub use request::{build_request, without_reasoning};
