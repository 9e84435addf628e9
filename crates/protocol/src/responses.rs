//! OpenAI Responses, and whoever speaks like it (Azure, vLLM, Open Responses), from both ends.
//!
//! `project` is what our own clients are told: records → responses. With a provider we are the client. `ingest` reads a
//! stream: `place` says which item an event means, `item` and `part` what becomes of it, `hosted` is what the service does
//! itself, `terminal` how it all ends. `request` builds what goes out; `input` is the history in it and knows the
//! reasoning-item trap: with ids present the service enforces the chain reasoning → message or call, so items go back either
//! as a whole group, as they came, or as plain words without ids. `drawn` is the picture in an item, for whoever keeps
//! pictures elsewhere. `refusal` reads an error answer.

mod asked;
mod asked_items;
pub mod drawn;
mod event;
mod given;
mod hosted;
mod ingest;
mod input;
mod item;
mod part;
mod place;
mod project;
mod refusal;
mod request;
mod terminal;
mod wishes;

pub use asked::{Asked, SERVER_LABEL, asked, asked_said, metadata};
pub use given::Given;
pub use ingest::ingest;
pub(crate) use project::{Answer, End, Head, Style, asked_arguments, result_text};
pub use project::{Segment, Unbegun};
pub use refusal::refused;
pub use request::{request, without_reasoning};
