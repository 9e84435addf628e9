//! The `messages` protocol, as clients see it.

mod accumulator;
mod answers;
#[path = "../../../upstream/tests/it/messages/event_lines.rs"]
#[expect(dead_code, reason = "`upstream` tests use the rest")]
mod event_lines;
