//! What Messages and Chat Completions share when they are spoken to us: protocols whose clients know neither threads nor
//! runs, bring their whole history with every request, and cannot come back to an answer.
//!
//! An answer is one **segment** of a run: it ends where the run does, or where the run pauses for tools that the client
//! runs. Segments are counted by such pauses alone; while a run waits for a person's approval, its answer stays open.
//! [`telling`] makes of a segment what can be told part by part; [`Asked`] is a request, in our words.

pub(crate) mod fields;
pub(crate) mod telling;

pub use telling::{Failure, FailureKind, is_handed_over};

use crate::said::{Said, What, Wrong};
use model::TaskId;
use model::block::Object;
use model::event::ClientTool;
use model::wish::Wishes;

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The agent, or `provider/model`.
    pub model: String,
    /// Is the answer to be streamed?
    pub stream: bool,
    /// Does a stream say what it cost, where the protocol leaves that to the client?
    pub include_usage: bool,
    /// What is said, the client's whole history included.
    pub said: Vec<Said>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    /// What is asked of the model.
    pub wishes: Wishes,
    /// The caller's own notes.
    pub metadata: Object,
}

/// The name of an answer: the run's own, and from the second segment on its number.
pub(crate) fn name(prefix: &str, run: &TaskId, segment: u32) -> String {
    let suffix = run.suffix();
    if segment > 1 { format!("{prefix}{suffix}_{segment}") } else { format!("{prefix}{suffix}") }
}

/// It is the client's turn to speak: a model cannot be made to go on with its own words.
pub(crate) fn check_last(said: &[Said]) -> Result<(), Wrong> {
    match said.last().map(|said| &said.what) {
        Some(What::User(_) | What::Result { .. }) => Ok(()),
        None => Err(Wrong::new("messages", "nothing is said in them")),
        Some(_) => Err(Wrong::new("messages", "the last one must be a user's, or the result of a tool")),
    }
}
