//! The `chat` protocol, as clients see it.

mod accumulator;
mod answers;
#[path = "../../../upstream/tests/it/chat/event_lines.rs"]
mod event_lines;
