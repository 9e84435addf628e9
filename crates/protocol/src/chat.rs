//! Chat Completions, as its server: [`asked`] reads a request, [`Answer`] is the response.

mod project;
mod request;
mod request_parts;

pub use project::ChatProjection;
pub use request::parse_chat_request;
