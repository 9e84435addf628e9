//! OpenAI Responses, and whoever speaks like it (Azure, vLLM, Open Responses): here we are the client.
//!
//! `ingest` reads a stream: `place` says which item an event means, `item` and `part` what becomes of it, `hosted` is what
//! the service does itself, `terminal` how it all ends. `request` builds what goes out; `input` is the history in it and
//! knows the reasoning-item trap: with ids present the service enforces the chain reasoning → message or call, so items go
//! back either as a whole group, as they came, or as plain words without ids. `refusal` reads an error answer.

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

pub use ingest::ingest;
pub use refusal::refused;
pub use request::{request, without_reasoning};
