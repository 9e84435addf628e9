//! What Messages and Chat Completions share when they are spoken to us: protocols whose clients know neither threads nor
//! runs, bring their whole history with every request, and cannot come back to an answer.
//!
//! An answer is one **segment** of a run: it ends where the run does, or where the run pauses for tools that the client
//! runs. Segments are counted by such pauses alone; while a run waits for a person's approval, its answer stays open.
//! `telling` makes of a segment what can be told part by part; [`Asked`] is a request, in our words.

mod failure;
pub(crate) mod request_fields;
pub(crate) mod segment;

pub use failure::{RunFailure, RunFailureKind};
pub use segment::is_client_tool_pause;

use crate::client_input::{ClientInput, InputKind, InvalidField};
use model::TaskId;
use model::event::ClientTool;
use model::json::JsonObject;
use model::model_settings::ModelSettings;

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatelessRequest {
    /// The agent, or `provider/model`.
    pub model: String,
    /// Is the answer to be streamed?
    pub stream: bool,
    /// Does a stream say what it cost, where the protocol leaves that to the client?
    pub include_usage: bool,
    /// What is said, the client's whole history included.
    pub input: Vec<ClientInput>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    /// What is asked of the model.
    pub model_settings: ModelSettings,
    /// The caller's own notes.
    pub metadata: JsonObject,
}

/// The name of an answer: the run's own, and from the second segment on its number.
pub(crate) fn answer_id(prefix: &str, run: &TaskId, segment: u32) -> String {
    let suffix = run.run_suffix();
    if segment > 1 { format!("{prefix}{suffix}_{segment}") } else { format!("{prefix}{suffix}") }
}

/// What a client said, ready to be taken. It must be the client that spoke last: a model cannot be made to go on with its
/// own words.
///
/// Words beside the results that a run of ours waits for are read with the last of these: both are for the same turn, and a
/// run that goes on with one of them would not wait for the other. So are those that come back later with the history, so
/// that they are known again.
pub(crate) fn normalize_input(said: Vec<ClientInput>) -> Result<Vec<ClientInput>, InvalidField> {
    match said.last() {
        None => return Err(InvalidField::new("messages", "nothing is said in them")),
        Some(last) if matches!(last.kind, InputKind::User(_)) || is_client_result(last) => {}
        Some(_) => return Err(InvalidField::new("messages", "the last one must be a user's, or the result of a tool")),
    }
    Ok(said.into_iter().fold(Vec::new(), append_input))
}

/// Adds what was said next.
fn append_input(mut said: Vec<ClientInput>, mut next: ClientInput) -> Vec<ClientInput> {
    match (said.last_mut(), &mut next.kind) {
        (Some(last), InputKind::User(words)) if is_client_result(last) && last.run_id().is_some() => {
            if let InputKind::ToolResult { content, .. } = &mut last.kind {
                content.append(words);
            }
        }
        _ => said.push(next),
    }
    said
}

/// Is it a result that the client brings? One that has a name is of a tool that the server ran.
fn is_client_result(said: &ClientInput) -> bool {
    matches!(said.kind, InputKind::ToolResult { .. }) && said.id.is_none()
}
