//! The questions of a call's tool.

use crate::id::ApprovalKey;
use crate::question::{OnDecline, QuestionContext, ToolQuestion};

/// The last round of questions of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionFold {
    /// The attempt that asked.
    pub attempt: u32,
    /// Counted from 1 in each attempt.
    pub round: u32,
    /// Whether the call waits for the answer while it runs.
    pub live: bool,
    pub state: Option<String>,
    pub on_decline: OnDecline,
    /// The tool's names of the questions that were asked, with their keys.
    pub asked: Vec<(String, ApprovalKey)>,
    /// The questions that are asked next.
    pub next: Vec<ToolQuestion>,
}

impl QuestionFold {
    /// The round after one more question. `before` is the round that the call had so far.
    pub(super) fn after(before: Option<Self>, key: ApprovalKey, context: &QuestionContext, attempt: u32) -> Self {
        let same_round = before.filter(|before| before.round == context.round && before.attempt == attempt);
        let mut asked = same_round.map(|before| before.asked).unwrap_or_default();
        asked.push((context.id.clone(), key));
        Self {
            attempt,
            round: context.round,
            live: context.live,
            state: context.state.clone(),
            on_decline: context.on_decline,
            asked,
            next: context.next.clone(),
        }
    }
}
