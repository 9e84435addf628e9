//! Anthropic Messages, as its server: [`MessagesProjection`] is a response, [`parse_messages_request`] reads a request.

mod project;
mod request;
mod wire;

pub use project::MessagesProjection;
pub use request::parse_messages_request;
pub use wire::SERVER_NAME;
