//! The native dialect (requirement 000): the log's own events, one frame each.
//!
//! A frame is the record's cursor, its type, and its public bytes as they were logged, with `seq` and `at` put in before
//! the closing brace. Nothing is re-serialised, so that a client of any later version gets the bytes of today, and
//! nothing is parsed on the way. [`Task`] makes frames, [`Reader`] and [`parse_frame`] read them.
//!
//! What may be read by whom, and when a stream is closed, is for `server`.

mod project;
mod wire;

pub use project::{RecordScope, TaskProjection, resume_seq};
pub use wire::{TaskFrame, TaskFrameError, TaskFrameReader, TaskReadError, parse_task_frame};
