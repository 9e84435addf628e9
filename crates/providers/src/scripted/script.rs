//! A scenario file as it is played: everything that can be worked out beforehand is.
//!
//! Which steps open and close which item is settled here, so that a player only walks from step to step. See `read` for
//! how a file becomes this.

use super::error::ScenarioError;
use super::limits::FILE_BYTES_MAX;
use super::read;
use super::template::{Names, Template};
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
    pub(super) list: Vec<Scenario>,
    /// The tools that a `call` names. `{tool}` is none of them.
    pub(super) called: BTreeSet<String>,
}

impl Scenarios {
    /// Reads scenarios from a text. `origin` is what errors call it.
    ///
    /// # Errors
    /// Says what is wrong, in which line, and what would be right.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
            return Err(ScenarioError::TooLong { origin: origin.to_owned() });
        }
        let list = read::scenarios(text, origin)?;
        let called = list.iter().flat_map(Scenario::called).map(str::to_owned).collect();
        Ok(Self { origin: origin.to_owned(), list, called })
    }

    /// Reads scenarios from a file.
    ///
    /// # Errors
    /// As [`Self::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let origin = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
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
    pub(super) names: Names,
    /// What the model does, turn by turn. Never empty.
    pub(super) turns: Vec<Fork>,
}

impl Scenario {
    /// Is it played for this model, whatever the message?
    pub(super) fn is_for(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|name| name == model)
    }

    /// The tools that it calls by name.
    fn called(&self) -> impl Iterator<Item = &str> {
        self.turns.iter().flat_map(Fork::turns).flat_map(|turn| &turn.steps).filter_map(|step| match step {
            Step::Say(Say { opens: Some(Opening::Call(name)), .. }) => name.literal(),
            _ => None,
        })
    }
}

/// A place in a scenario: the first turn whose condition holds is played there.
#[derive(Debug)]
pub(super) struct Fork {
    pub(super) guarded: Vec<(When, Arc<Turn>)>,
    pub(super) otherwise: Arc<Turn>,
}

impl Fork {
    fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.guarded.iter().map(|(_, turn)| turn).chain([&self.otherwise]).map(AsRef::as_ref)
    }
}

/// When a turn is played. All that is said must hold.
#[derive(Debug, Default)]
pub(super) struct When {
    /// How the last result ended: one of these; none is whatever there is.
    pub(super) statuses: Vec<ResultStatus>,
    /// Does `{tool}` stand for one?
    pub(super) tool: Option<bool>,
}

/// One model turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) steps: Vec<Step>,
    /// `None` is counted while it is played.
    pub(super) usage: Option<Usage>,
    pub(super) stop: StopReason,
}

/// One line of a turn.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing for so many milliseconds.
    Pause(Amount),
    /// A piece of an item.
    Say(Say),
    /// The turn fails, always or in its first tries.
    Fail { failure: ModelFailure, message: Template, times: Option<u64> },
}

impl Step {
    /// Does nothing ever come after it?
    pub(super) const fn is_the_end(&self) -> bool {
        matches!(self, Self::Fail { times: None, .. })
    }
}

/// A piece of an item: perhaps its beginning, some deltas, perhaps its end.
#[derive(Debug)]
pub(super) struct Say {
    pub(super) slot: u32,
    /// The item that begins here. `None` goes on with the one that the step before left open.
    pub(super) opens: Option<Opening>,
    pub(super) deltas: Deltas,
    /// How many deltas; `None` is each piece once.
    pub(super) repeat: Option<Amount>,
    /// Milliseconds between two deltas.
    pub(super) every: Amount,
    /// Is the item whole after this?
    pub(super) closes: bool,
}

/// What begins.
#[derive(Debug)]
pub(super) enum Opening {
    Message,
    Reasoning,
    Call(Template),
    Hosted(String),
}

/// What the deltas of a step say. No list of pieces is empty.
#[derive(Debug)]
pub(super) enum Deltas {
    Reasoning { part: u32, pieces: Vec<Template> },
    Text(Vec<Template>),
    Arguments(Vec<Template>),
    Hosted { states: Vec<String>, images: Vec<String> },
}

impl Deltas {
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
pub(super) enum Amount {
    Fixed(u64),
    /// The placeholder, and what it may be at most.
    Value {
        value: usize,
        max: u64,
    },
}
