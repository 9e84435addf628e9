//! The parts that Messages and Chat Completions share: protocols whose clients know neither threads nor runs, send their
//! whole history with every request, and cannot resume a stream.
//!
//! A response is one **segment** of a run: it ends with the run, or where the run pauses for tools that the client runs.
//! Segments are counted by such pauses alone; while a run waits for an approval, its response stays open.

mod part_text;
pub(crate) mod segment;

pub use crate::run_end::{RunFailure, RunFailureKind};
pub(crate) use part_text::{SegmentPart, parse_arguments_object};
pub use segment::is_client_tool_pause;

use crate::client_input::{ClientInput, InputKind, InvalidField};
use model::TaskId;
use model::event::ClientTool;
use model::json::ExactObject;
use model::model_settings::ModelSettings;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatelessRequest {
    /// The agent, or `provider/model`.
    pub model: String,
    pub stream: bool,
    /// Send usage at the end of a stream, in a protocol that leaves this to the client.
    pub include_usage: bool,
    /// The client's whole history.
    pub input: Vec<ClientInput>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    pub model_settings: ModelSettings,
    pub metadata: ExactObject,
}

/// The id of a response: the run's own, and from the second segment on the segment's number.
pub(crate) fn response_id(prefix: &str, run: &TaskId, segment: u32) -> String {
    let suffix = run.run_suffix();
    if segment > 1 { format!("{prefix}{suffix}_{segment}") } else { format!("{prefix}{suffix}") }
}

/// Merges inputs, and rejects a last message of the assistant: models cannot continue their own message.
///
/// Texts next to the results that a run waits for become part of the last result: both are for the same turn, and a run
/// that resumed with one of them would not wait for the other. The same happens when they come back as history, so that
/// they are recognized.
pub(crate) fn normalize_input(inputs: Vec<ClientInput>) -> Result<Vec<ClientInput>, InvalidField> {
    match inputs.last() {
        None => return Err(InvalidField::new("messages", "expected at least one message with the role `user`")),
        Some(last) if matches!(last.kind, InputKind::User(_)) || is_client_result(last) => {}
        Some(_) => {
            return Err(InvalidField::new("messages", "the last one must be a user message or a tool result"));
        }
    }
    Ok(inputs.into_iter().fold(Vec::new(), append_input))
}

fn append_input(mut inputs: Vec<ClientInput>, mut next: ClientInput) -> Vec<ClientInput> {
    match (inputs.last_mut(), &mut next.kind) {
        (Some(last), InputKind::User(parts)) if is_client_result(last) && last.run_id().is_some() => {
            if let InputKind::ToolResult { content, .. } = &mut last.kind {
                content.append(parts);
            }
        }
        _ => inputs.push(next),
    }
    inputs
}

/// Whether this is the result of a client tool. The result of a tool that the server ran has an id.
fn is_client_result(input: &ClientInput) -> bool {
    matches!(input.kind, InputKind::ToolResult { .. }) && input.id.is_none()
}
