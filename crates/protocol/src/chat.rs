//! Chat Completions, as its server: [`ChatProjection`] is a response, [`parse_chat_request`] reads a request.

mod project;
mod request;
mod wire;

pub use project::{ChatProjection, StreamUsage};
pub use request::parse_chat_request;
