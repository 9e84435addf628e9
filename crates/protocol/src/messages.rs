//! Anthropic Messages, as its server: [`asked`] reads a request, [`Answer`] is the response.

mod project;
mod request;
mod request_blocks;

pub use project::{MessagesProjection, SERVER_NAME};
pub use request::parse_messages_request;
