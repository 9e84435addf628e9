//! What Messages and Chat Completions share when they are spoken to us: protocols whose clients know neither threads nor
//! runs, bring their whole history with every request, and cannot come back to an answer.
//!
//! An answer is one **segment** of a run: it ends where the run does, or where the run pauses for tools that the client
//! runs. Segments are counted by such pauses alone; while a run waits for a person's approval, its answer stays open.
//! `telling` makes of a segment what can be told part by part; [`Asked`] is a request, in our words.

mod failure;
pub(crate) mod fields;
pub(crate) mod telling;

pub use failure::{Failure, FailureKind};
pub use telling::is_handed_over;

use crate::said::{Said, What, Wrong};
use model::TaskId;
use model::block::JsonObject;
use model::event::ClientTool;
use model::model_settings::ModelSettings;

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
    pub wishes: ModelSettings,
    /// The caller's own notes.
    pub metadata: JsonObject,
}

/// The name of an answer: the run's own, and from the second segment on its number.
pub(crate) fn name(prefix: &str, run: &TaskId, segment: u32) -> String {
    let suffix = run.run_suffix();
    if segment > 1 { format!("{prefix}{suffix}_{segment}") } else { format!("{prefix}{suffix}") }
}

/// What a client said, ready to be taken. It must be the client that spoke last: a model cannot be made to go on with its
/// own words.
///
/// Words beside the results that a run of ours waits for are read with the last of these: both are for the same turn, and a
/// run that goes on with one of them would not wait for the other. So are those that come back later with the history, so
/// that they are known again.
pub(crate) fn settled(said: Vec<Said>) -> Result<Vec<Said>, Wrong> {
    match said.last() {
        None => return Err(Wrong::new("messages", "nothing is said in them")),
        Some(last) if matches!(last.what, What::User(_)) || is_answer(last) => {}
        Some(_) => return Err(Wrong::new("messages", "the last one must be a user's, or the result of a tool")),
    }
    Ok(said.into_iter().fold(Vec::new(), joined))
}

/// Adds what was said next.
fn joined(mut said: Vec<Said>, mut next: Said) -> Vec<Said> {
    match (said.last_mut(), &mut next.what) {
        (Some(last), What::User(words)) if is_answer(last) && last.run().is_some() => {
            if let What::Result { content, .. } = &mut last.what {
                content.append(words);
            }
        }
        _ => said.push(next),
    }
    said
}

/// Is it a result that the client brings? One that has a name is of a tool that the server ran.
fn is_answer(said: &Said) -> bool {
    matches!(said.what, What::Result { .. }) && said.id.is_none()
}
