//! A parsed scenario file, with everything precomputed that does not depend on the request.
//!
//! This includes which step starts and finishes which item, so the player only walks from step to step. `parse` builds it.

use super::template::{Placeholders, Template};
use model::event::StopReason;
use model::item::ResultStatus;
use model::model_turn::ModelFailure;
use model::usage::Usage;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The scenarios of a file, in order.
#[derive(Debug)]
pub struct Scenarios {
    pub(super) origin: String,
    pub(super) scenarios: Vec<Scenario>,
    /// The tools that some `call` names. `{tool}` is a tool that is none of them.
    pub(super) called_tools: BTreeSet<String>,
}

/// The responses to messages that match a pattern.
#[derive(Debug)]
pub(super) struct Scenario {
    /// The models that play it; all models if empty.
    pub(super) models: Vec<String>,
    /// The messages that it responds to; all messages if `None`.
    pub(super) pattern: Option<Regex>,
    /// Whether these messages have an image; `None` if that does not matter.
    pub(super) has_image: Option<bool>,
    pub(super) placeholders: Placeholders,
    /// One for each turn; never empty.
    pub(super) choices: Vec<TurnChoice>,
}

impl Scenario {
    pub(super) fn is_for_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|name| name == model)
    }

    /// Whether it responds to every message.
    pub(super) const fn is_catch_all(&self) -> bool {
        self.pattern.is_none() && self.has_image.is_none()
    }

    /// The tools that it calls by a literal name.
    pub(super) fn called_tools(&self) -> impl Iterator<Item = &str> {
        self.choices.iter().flat_map(TurnChoice::turns).flat_map(|turn| &turn.steps).filter_map(|step| match step {
            ScenarioStep::Emit(EmitStep { starts: Some(ItemStart::Call(name)), .. }) => name.as_literal(),
            _ => None,
        })
    }
}

/// The alternatives for one turn: the first whose condition holds is played.
#[derive(Debug)]
pub(super) struct TurnChoice {
    pub(super) conditional: Vec<(TurnCondition, Arc<ScenarioTurn>)>,
    pub(super) fallback: Arc<ScenarioTurn>,
}

impl TurnChoice {
    fn turns(&self) -> impl Iterator<Item = &ScenarioTurn> {
        self.conditional.iter().map(|(_, turn)| turn).chain([&self.fallback]).map(AsRef::as_ref)
    }
}

/// When a turn is played. All parts have to hold.
#[derive(Debug, Default)]
pub(super) struct TurnCondition {
    /// The status of the last result is one of these; any if empty.
    pub(super) statuses: Vec<ResultStatus>,
    /// Whether `{tool}` has a value.
    pub(super) has_tool: Option<bool>,
}

#[derive(Debug)]
pub(super) struct ScenarioTurn {
    pub(super) steps: Vec<ScenarioStep>,
    /// Estimated by the player if `None`.
    pub(super) usage: Option<Usage>,
    pub(super) stop: StopReason,
}

#[derive(Debug)]
pub(super) enum ScenarioStep {
    /// In milliseconds.
    Pause(NumberOrPlaceholder),
    Emit(EmitStep),
    /// The turn fails, always or in its first `times` attempts.
    Fail {
        failure: ModelFailure,
        message: Template,
        times: Option<u64>,
    },
}

impl ScenarioStep {
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Fail { times: None, .. })
    }
}

/// Deltas of an item, perhaps with its start and its end.
#[derive(Debug)]
pub(super) struct EmitStep {
    pub(super) slot: u32,
    /// The item that starts here. `None` continues the item of the previous step.
    pub(super) starts: Option<ItemStart>,
    pub(super) deltas: StepDeltas,
    /// Number of deltas; `None` emits each one once.
    pub(super) repeat: Option<NumberOrPlaceholder>,
    /// Between two deltas.
    pub(super) interval_ms: NumberOrPlaceholder,
    /// The item is done after this step.
    pub(super) is_last: bool,
}

#[derive(Debug)]
pub(super) enum ItemStart {
    Message,
    Reasoning,
    Call(Template),
    Hosted(String),
    /// The provider asks whether it may call a tool of an MCP server.
    Approval {
        name: String,
        server_label: String,
    },
    /// Actions on a computer.
    Computer,
}

/// The deltas of a step; no list is empty, but for one of a hosted call's two.
#[derive(Debug)]
pub(super) enum StepDeltas {
    Reasoning { part: u32, pieces: Vec<Template> },
    Text(Vec<Template>),
    Arguments(Vec<Template>),
    Hosted { states: Vec<String>, images: Vec<String> },
}

impl StepDeltas {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Reasoning { pieces, .. } | Self::Text(pieces) | Self::Arguments(pieces) => pieces.len(),
            Self::Hosted { states, images } => states.len() + images.len(),
        }
    }
}

/// A number from the file, or from the user's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberOrPlaceholder {
    Fixed(u64),
    /// The index of the placeholder, and the largest number that it may be.
    Placeholder {
        value: usize,
        max: u64,
    },
}
