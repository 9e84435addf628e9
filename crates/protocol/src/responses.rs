//! OpenAI Responses, as its server: records → responses.

mod asked;
mod asked_items;
mod given;
mod project;

pub use asked::{Asked, SERVER_LABEL, asked, asked_said, metadata};
pub use given::Given;
pub(crate) use project::{Answer, End, Head, Style, asked_arguments, result_text};
pub use project::{Segment, Unbegun};
