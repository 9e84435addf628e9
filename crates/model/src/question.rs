//! Questions of tools to people: what a tool asks, how the call goes on, and what it is told.

use crate::event::{ApprovalDecisionKind, ApprovalResolved, Initiator, Question};
use crate::json::{ExactObject, ExactValue};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// A question under the name by which the tool knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolQuestion {
    pub id: String,
    pub question: Question,
}

/// A call that ended with questions.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InputRequired {
    pub questions: Vec<ToolQuestion>,
    /// Given back to the tool with the answers, unchanged. No client sees it.
    pub state: Option<String>,
    #[serde(default)]
    pub on_decline: OnDecline,
}

/// What follows when nobody answers a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDecline {
    /// The tool is called again and told so.
    #[default]
    CallAgain,
    /// The call is rejected.
    Reject,
}

/// The private half of a question: how its call goes on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuestionContext {
    /// The tool's name of the question.
    pub id: String,
    /// How often the call has asked, counted from 1.
    pub round: u32,
    /// Whether the call still runs and waits for the answer. If not, it is made again with the answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub live: bool,
    pub state: Option<String>,
    #[serde(default)]
    pub on_decline: OnDecline,
    /// The questions of the same round that are asked next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<ToolQuestion>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The answers to the questions of a call, for the tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolAnswers {
    /// What the tool sent with its questions.
    pub state: Option<String>,
    /// By the tool's names of its questions.
    pub answers: BTreeMap<String, QuestionAnswer>,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionAnswer {
    /// Content that fits the question's schema.
    Accepted(ExactValue),
    /// A person does not want to answer; the reason, if there is one.
    Declined(Option<String>),
    /// Nobody has decided.
    Cancelled,
}

impl QuestionAnswer {
    /// The answer that a decision gives. Without `args` it is the empty object.
    pub fn from_decision(resolved: &ApprovalResolved) -> Self {
        let Some(decision) = resolved.decisions.first() else { return Self::Cancelled };
        match (decision.kind, resolved.by) {
            (ApprovalDecisionKind::Approve | ApprovalDecisionKind::Edit, _) => {
                let empty = || ExactValue::Object(ExactObject::default());
                Self::Accepted(decision.args.clone().unwrap_or_else(empty))
            }
            (ApprovalDecisionKind::Reject, Initiator::User) => Self::Declined(decision.message.clone()),
            (ApprovalDecisionKind::Reject, _) => Self::Cancelled,
        }
    }
}
