//! OpenAI Responses, and every service that speaks it (Azure, vLLM, Open Responses), as its client.
//!
//! `ingest` reads a stream: `place` finds the item that an event means, `item` and `part` say what becomes of it, `hosted`
//! is what the service runs itself, `terminal` how the response ends. `request` builds the body that goes out; `input` is
//! the history in it and knows the reasoning-item trap: with ids present the service enforces the chain reasoning →
//! message or call, so items go back either as a whole group, as they came, or as plain text without ids. `drawn` finds the
//! image in an item, for callers that keep images elsewhere. `refusal` reads an error response.

pub mod drawn;
mod event;
mod hosted;
mod ingest;
mod input;
mod item;
mod part;
mod place;
mod refusal;
mod request;
mod terminal;
mod wishes;

pub use ingest::ingest;
pub use refusal::refused;
pub use request::{request, without_reasoning};
