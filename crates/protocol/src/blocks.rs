//! A thread as turns of content blocks, one JSON object per line, for front ends that hold a WebSocket.
//!
//! A run is a turn: `message_start`, blocks that start, grow and stop, `message_delta`, `message_stop`.
//! [`BlocksProjection`] projects one run after the other and never ends. Clients send a [`BlocksMessage`] over the same
//! socket.

mod frame_writer;
mod project;
mod request;
mod tool_blocks;
mod wire;

pub use project::{BLOCKS_PROJECTION, BlocksProjection};
pub use request::{
    BlocksApprovalResponse, BlocksChat, BlocksMessage, BlocksMessageHeader, BlocksMessageType, BlocksResume, BlocksStop,
};
