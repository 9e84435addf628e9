//! Which turn of which scenario a request plays, and what its placeholders stand for.
//!
//! All of it is read from the request's history, nothing is remembered: the last user message chooses the scenario, and
//! how often tools answered since then is the number of turns that it has behind it. So a turn that is tried again
//! after a failure or a crash is the same turn, and a thread's next run begins with the first one.

use super::script::{Amount, Scenario, Scenarios, Step, Turn};
use super::template::REF;
use model::block::Part;
use model::delta::ModelRequest;
use model::history::Entry;
use std::sync::Arc;
use std::time::Duration;

/// A turn with everything that this request gives it.
#[derive(Debug)]
pub(super) struct Cast {
    pub(super) turn: Arc<Turn>,
    /// What the scenario's names stand for, in their order.
    pub(super) values: Vec<String>,
    /// One for each step.
    pub(super) paces: Vec<Pace>,
    /// Characters that the model was given.
    pub(super) read_chars: u64,
}

/// How a step moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// How many deltas.
    pub(super) deltas: u64,
    /// The time between two of them, or a pause.
    pub(super) every: Duration,
}

/// Why nothing can be played.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CastError {
    #[error("no scenario of {origin} matches the last user message")]
    NoScenario { origin: String },
    #[error("`{name}` must be a whole number from 0 to {max} in scenario {scenario} of {origin}, not `{found}`")]
    NotANumber { origin: String, scenario: usize, name: String, max: u64, found: String },
}

impl CastError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::NoScenario { .. } => "no_scenario",
            Self::NotANumber { .. } => "scenario_value",
        }
    }
}

pub(super) fn cast(scenarios: &Scenarios, request: &ModelRequest) -> Result<Cast, CastError> {
    let (said, since) = last_user_message(&request.history);
    let none = || CastError::NoScenario { origin: scenarios.origin.clone() };
    let mut numbered = (1..).zip(&scenarios.list);
    let (number, scenario) = numbered.find(|(_, scenario)| matches(scenario, &said)).ok_or_else(none)?;
    let turn = scenario.turns.get(rounds(since)).or(scenario.turns.last()).ok_or_else(none)?;
    let values = values(scenario, &said, since);
    let pace = |step| {
        pace(step, &values).map_err(|(value, max)| CastError::NotANumber {
            origin: scenarios.origin.clone(),
            scenario: number,
            name: scenario.names.name(value).to_owned(),
            max,
            found: values.get(value).cloned().unwrap_or_default(),
        })
    };
    let paces = turn.steps.iter().map(pace).collect::<Result<_, _>>()?;
    let read_chars = if turn.usage.is_some() { 0 } else { chars_of(request) };
    Ok(Cast { turn: Arc::clone(turn), values, paces, read_chars })
}

/// What the user wrote last, and what happened since.
fn last_user_message(history: &[Entry]) -> (String, &[Entry]) {
    let last = history.iter().enumerate().rev().find_map(|(place, entry)| match entry {
        Entry::User { content } => Some((place, content)),
        _ => None,
    });
    let Some((place, content)) = last else { return (String::new(), history) };
    // What carries tags was put there by somebody else.
    let texts = content.iter().filter_map(|part| match part {
        Part::Text { text, tags, .. } if tags.is_empty() => Some(text.as_str()),
        _ => None,
    });
    let said = texts.collect::<Vec<_>>().join("\n");
    (said, history.get(place + 1..).unwrap_or_default())
}

fn matches(scenario: &Scenario, said: &str) -> bool {
    scenario.pattern.as_ref().is_none_or(|pattern| pattern.is_match(said))
}

/// How many turns had their tools answered.
fn rounds(since: &[Entry]) -> usize {
    let groups = since.chunk_by(|a, b| is_result(a) == is_result(b));
    groups.filter(|group| group.first().is_some_and(is_result)).count()
}

fn is_result(entry: &Entry) -> bool {
    matches!(entry, Entry::Result { .. })
}

fn values(scenario: &Scenario, said: &str, since: &[Entry]) -> Vec<String> {
    let captures = scenario.pattern.as_ref().and_then(|pattern| pattern.captures(said));
    let reference = last_reference(since).map(|id| id.to_string());
    scenario.names.values(|value, name| match value {
        REF => reference.as_deref(),
        _ => Some(captures.as_ref()?.name(name)?.as_str()),
    })
}

/// The number of the reference group that tools gave last.
fn last_reference(since: &[Entry]) -> Option<u32> {
    since.iter().rev().find_map(|entry| match entry {
        Entry::Result { content, .. } => content.iter().rev().find_map(|part| match part {
            Part::Text { id, .. } | Part::ImageUrl { id, .. } => *id,
            Part::File { .. } => None,
        }),
        _ => None,
    })
}

/// How the step moves, or which value is not the number that it should be.
fn pace(step: &Step, values: &[String]) -> Result<Pace, (usize, u64)> {
    let number = |amount| match amount {
        Amount::Fixed(number) => Ok(number),
        Amount::Value { value, max } => {
            let number = values.get(value).and_then(|text| text.parse().ok());
            number.filter(|number| *number <= max).ok_or((value, max))
        }
    };
    match step {
        Step::Pause(pause) => Ok(Pace { deltas: 0, every: Duration::from_millis(number(*pause)?) }),
        Step::Say(say) => {
            let once = Amount::Fixed(u64::try_from(say.deltas.len()).unwrap_or(u64::MAX));
            let deltas = number(say.repeat.unwrap_or(once))?;
            Ok(Pace { deltas, every: Duration::from_millis(number(say.every)?) })
        }
        Step::Fail { .. } => Ok(Pace::default()),
    }
}

/// How much the model was given to read.
fn chars_of(request: &ModelRequest) -> u64 {
    let count = |text: &str| u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    let parts = |content: &[Part]| {
        let texts = content.iter().map(|part| match part {
            Part::Text { text, .. } => count(text),
            Part::ImageUrl { .. } | Part::File { .. } => 0,
        });
        texts.sum::<u64>()
    };
    let entries = request.history.iter().map(|entry| match entry {
        Entry::User { content } | Entry::Result { content, .. } => parts(content),
        Entry::Assistant { text, .. } => count(text),
        Entry::Call { arguments, .. } => count(arguments),
        Entry::Reasoning { .. } => 0,
    });
    count(&request.instructions) + entries.sum::<u64>()
}
