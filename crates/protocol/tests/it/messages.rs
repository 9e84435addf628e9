//! The `messages` dialect, as our clients see it.

mod answers;
mod collects;
#[path = "../../../upstream/tests/it/messages/words.rs"]
#[expect(dead_code, reason = "`upstream` tests use the rest")]
mod words;
