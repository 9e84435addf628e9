//! Anthropic Messages, as its server: [`asked`] reads a request, [`Answer`] is the response.

mod asked;
mod asked_blocks;
mod project;

pub use asked::asked;
pub use project::{Answer, SERVER_NAME};
