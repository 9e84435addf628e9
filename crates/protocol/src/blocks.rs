//! A conversation as turns of content blocks, one JSON object per line, for front ends that hold a WebSocket.
//!
//! A run is a turn: `message_start`, blocks that begin, grow and stop, `message_delta`, `message_stop`. [`Blocks`] goes
//! through a thread's records run after run and never ends. `wire` has the frames, `project` says which record makes
//! which, `result` is what a call gave.
//!
//! What a client may send, and over what, is for `server`.

mod project;
mod tool_blocks;
mod wire;

pub use project::{BLOCKS_PROJECTION, BlocksProjection};
