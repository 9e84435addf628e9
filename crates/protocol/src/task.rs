//! The native protocol (requirement 000): the events of the log, one frame each.
//!
//! A frame is the record's cursor, its type, and its public bytes as they were logged, with `seq` and `at` inserted before
//! the closing brace. Nothing is parsed or serialized again, so clients of any later version get the bytes of today.
//! [`TaskProjection`] makes frames, [`TaskFrameReader`] and [`parse_task_frame`] read them; `request` has the
//! bodies of requests.

mod client_tool;
mod project;
mod request;
mod wire;

pub use client_tool::DeclaredClientTool;
pub use project::{RecordScope, TaskProjection, resume_seq};
pub use request::{
    ARGUMENTS_MISPLACED, CancelRequest, CreateTaskRequest, DecideApprovalRequest, OnBusyParam, OnDisconnectParam,
    SendInputRequest, SubmittedToolResult, TaskInput, parse_tool_results,
};
pub use wire::{EventFrame, TaskFrame, TaskFrameError, TaskFrameReader, TaskReadError, parse_task_frame};
