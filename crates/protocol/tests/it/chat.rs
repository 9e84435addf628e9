//! The `chat` dialect, as our clients see it.

mod answers;
mod collects;
#[path = "../../../upstream/tests/it/chat/words.rs"]
mod words;
