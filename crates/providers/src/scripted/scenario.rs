//! A scenario file as it is played: everything that can be worked out beforehand is.
//!
//! Which steps open and close which item is settled here, so that a player only walks from step to step. See `read` for
//! how a file becomes this.

use super::error::ScenarioError;
use super::limits::SCENARIO_FILE_BYTES_MAX;
use super::parse;
use super::template::{Placeholders, Template};
use model::event::StopReason;
use model::item::ResultStatus;
use model::model_turn::ModelFailure;
use model::usage::Usage;
use regex::Regex;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// All scenarios of a file, in its order.
#[derive(Debug)]
pub struct Scenarios {
    pub(super) origin: String,
    pub(super) scenarios: Vec<Scenario>,
    /// The tools that a `call` names. `{tool}` is none of them.
    pub(super) called_tools: BTreeSet<String>,
}

impl Scenarios {
    /// Reads scenarios from a text. `origin` is what errors call it.
    ///
    /// # Errors
    /// Says what is wrong, in which line, and what would be right.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > SCENARIO_FILE_BYTES_MAX {
            return Err(ScenarioError::TooLong { origin: origin.to_owned() });
        }
        let list = parse::parse_scenarios(text, origin)?;
        let called = list.iter().flat_map(Scenario::called_tools).map(str::to_owned).collect();
        Ok(Self { origin: origin.to_owned(), scenarios: list, called_tools: called })
    }

    /// Reads scenarios from a file.
    ///
    /// # Errors
    /// As [`Self::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let origin = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(SCENARIO_FILE_BYTES_MAX + 1).read_to_string(&mut text));
        match read {
            Ok(_) => Self::parse(&text, &origin),
            Err(source) => Err(ScenarioError::Read { origin, source }),
        }
    }
}

/// What is said to one kind of message.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Which models play it; none is every one.
    pub(super) models: Vec<String>,
    /// Which messages; `None` is every one.
    pub(super) pattern: Option<Regex>,
    pub(super) placeholders: Placeholders,
    /// What the model does, turn by turn. Never empty.
    pub(super) choices: Vec<TurnChoice>,
}

impl Scenario {
    /// Is it played for this model, whatever the message?
    pub(super) fn is_for_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|name| name == model)
    }

    /// The tools that it calls by name.
    fn called_tools(&self) -> impl Iterator<Item = &str> {
        self.choices.iter().flat_map(TurnChoice::turns).flat_map(|turn| &turn.steps).filter_map(|step| match step {
            ScenarioStep::Emit(EmitStep { starts: Some(ItemStart::Call(name)), .. }) => name.as_literal(),
            _ => None,
        })
    }
}

/// A place in a scenario: the first turn whose condition holds is played there.
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

/// When a turn is played. All that is said must hold.
#[derive(Debug, Default)]
pub(super) struct TurnCondition {
    /// How the last result ended: one of these; none is whatever there is.
    pub(super) statuses: Vec<ResultStatus>,
    /// Does `{tool}` stand for one?
    pub(super) has_tool: Option<bool>,
}

/// One model turn.
#[derive(Debug)]
pub(super) struct ScenarioTurn {
    pub(super) steps: Vec<ScenarioStep>,
    /// `None` is counted while it is played.
    pub(super) usage: Option<Usage>,
    pub(super) stop: StopReason,
}

/// One line of a turn.
#[derive(Debug)]
pub(super) enum ScenarioStep {
    /// Nothing for so many milliseconds.
    Pause(NumberOrPlaceholder),
    /// A piece of an item.
    Emit(EmitStep),
    /// The turn fails, always or in its first tries.
    Fail { failure: ModelFailure, message: Template, times: Option<u64> },
}

impl ScenarioStep {
    /// Does nothing ever come after it?
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Fail { times: None, .. })
    }
}

/// A piece of an item: perhaps its beginning, some deltas, perhaps its end.
#[derive(Debug)]
pub(super) struct EmitStep {
    pub(super) slot: u32,
    /// The item that begins here. `None` goes on with the one that the step before left open.
    pub(super) starts: Option<ItemStart>,
    pub(super) deltas: StepDeltas,
    /// How many deltas; `None` is each piece once.
    pub(super) repeat: Option<NumberOrPlaceholder>,
    /// Milliseconds between two deltas.
    pub(super) interval_ms: NumberOrPlaceholder,
    /// Is the item whole after this?
    pub(super) is_last: bool,
}

/// What begins.
#[derive(Debug)]
pub(super) enum ItemStart {
    Message,
    Reasoning,
    Call(Template),
    Hosted(String),
}

/// What the deltas of a step say. No list of pieces is empty.
#[derive(Debug)]
pub(super) enum StepDeltas {
    Reasoning { part: u32, pieces: Vec<Template> },
    Text(Vec<Template>),
    Arguments(Vec<Template>),
    Hosted { states: Vec<String>, images: Vec<String> },
}

impl StepDeltas {
    /// How many pieces there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Reasoning { pieces, .. } | Self::Text(pieces) | Self::Arguments(pieces) => pieces.len(),
            Self::Hosted { states, images } => states.len() + images.len(),
        }
    }
}

/// A number that stands in the file, or that the message gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberOrPlaceholder {
    Fixed(u64),
    /// The placeholder, and what it may be at most.
    Placeholder {
        value: usize,
        max: u64,
    },
}
