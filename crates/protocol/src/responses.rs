//! OpenAI Responses, as its server: records → responses.

mod input_items;
mod project;
mod request;
mod request_items;

pub use input_items::InputItems;
pub(crate) use project::{ItemStyle, ResponseBuilder, ResponseEnd, ResponseHead, approval_arguments, result_text};
pub use project::{PendingResponse, ResponsesProjection};
pub use request::{ResponsesRequest, SERVER_LABEL, parse_conversation_items, parse_metadata, parse_responses_request};
