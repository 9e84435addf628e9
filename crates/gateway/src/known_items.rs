//! Which items of a request the log has already.

use crate::context::Gateway;
use crate::rejection::Rejection;
use model::ports::RunRow;
use model::{TaskId, ThreadId, UserId};
use protocol::client_input::{ClientInput, InputKind};

/// Lookups of ids that are no run of the user, before a history counts as foreign.
const UNKNOWN_RUN_LOOKUPS_MAX: usize = 100;

/// The conversation that a request names.
pub enum ConversationRef {
    /// None: its items may refer to one.
    Unspecified,
    /// The one that a run belongs to: the request continues from there.
    AfterRun(Box<RunRow>),
    /// A thread, which need not exist yet.
    InThread(ThreadId),
}

impl ConversationRef {
    fn thread(&self) -> Option<&ThreadId> {
        match self {
            Self::Unspecified => None,
            Self::AfterRun(run) => Some(&run.thread),
            Self::InThread(thread) => Some(thread),
        }
    }
}

/// Returns the number of known items: all up to the last one that a run of the user produced. If the request names no
/// conversation, that run's is continued; if it names a thread, only items of that thread are known. A summary replaces the
/// conversation before it, so that no item before it is looked up.
pub async fn find_known_prefix(
    gateway: &Gateway,
    user: &UserId,
    items: &[ClientInput],
    conversation: ConversationRef,
) -> Result<(usize, ConversationRef), Rejection> {
    let mut unknown_runs: Vec<TaskId> = Vec::new();
    let is_summary = |item: &ClientInput| matches!(item.kind, InputKind::Summary { .. });
    for (index, item) in items.iter().enumerate().rev().take_while(|(_, item)| !is_summary(item)) {
        let Some(run) = item.run_id().filter(|run| !unknown_runs.contains(run)) else { continue };
        if unknown_runs.len() >= UNKNOWN_RUN_LOOKUPS_MAX {
            break;
        }
        match gateway.engine.run_of_task(user, &run).await? {
            Some(row) if conversation.thread().is_none_or(|thread| *thread == row.thread) => {
                let conversation = match conversation {
                    ConversationRef::Unspecified => ConversationRef::AfterRun(Box::new(row)),
                    named => named,
                };
                return Ok((index + 1, conversation));
            }
            Some(_) | None => unknown_runs.push(run),
        }
    }
    Ok((0, conversation))
}
