//! OpenAI Responses, as its server.
//!
//! [`ResponsesProjection`] is a response as a stream or an object, [`InputItems`] lists its input, and
//! [`parse_responses_request`] parses a request.

mod compact;
mod input_items;
mod project;
mod request;
mod wire;

pub use compact::{CompactRequest, CompactedConversation, parse_compact_request};
pub use input_items::InputItems;
pub(crate) use project::{
    ItemStyle, ResponseBuilder, ResponseHead, ResponsesSink, approval_arguments, approval_request_item, is_shown_whole,
};
pub use project::{PendingResponse, PendingStatus, ResponsesProjection};
pub use request::{
    RequestedMcpServer, ResponsesRequest, check_metadata, parse_conversation_items, parse_responses_request,
};
pub use wire::SERVER_LABEL;
pub(crate) use wire::{McpApprovalResponseItem, ResponsesEvent, SentItem};
