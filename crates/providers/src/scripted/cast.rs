//! Which turn of which scenario a request plays, and what its placeholders stand for.
//!
//! All of it is read from the request, nothing is remembered: the model and the last user message choose the scenario,
//! and how often tools answered since then is the number of turns that it has behind it. So a turn that is tried again
//! after a failure or a crash is the same turn, and a thread's next run begins with the first one.

use super::script::{Amount, Fork, Opening, Say, Scenario, Scenarios, Step, Turn, When};
use super::template::{REF, RESULT, TOOL};
use model::block::ContentPart;
use model::definition::handoff_tool_name;
use model::history::HistoryEntry;
use model::item::ResultStatus;
use model::model_turn::ModelRequest;
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
    /// Which try it is, from 1.
    pub(super) attempt: u32,
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
    #[error("no scenario of {origin} for the model `{model}` matches the last user message")]
    NoScenario { origin: String, model: String },
    #[error("`{name}` must be a whole number from 0 to {max} in scenario {scenario} of {origin}, not `{found}`")]
    NotANumber { origin: String, scenario: usize, name: String, max: u64, found: String },
    #[error("`{name}` stands for nothing in scenario {scenario} of {origin}, and a call needs the name of a tool")]
    NoTool { origin: String, scenario: usize, name: String },
}

impl CastError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::NoScenario { .. } => "no_scenario",
            Self::NotANumber { .. } | Self::NoTool { .. } => "scenario_value",
        }
    }
}

pub(super) fn cast(scenarios: &Scenarios, request: &ModelRequest) -> Result<Cast, CastError> {
    let scene = Scene::of(scenarios, request);
    let origin = || scenarios.origin.clone();
    let none = || CastError::NoScenario { origin: origin(), model: scene.model.to_owned() };
    let mut numbered = (1..).zip(&scenarios.list);
    let (number, scenario) = numbered.find(|(_, scenario)| scene.is_of(scenario)).ok_or_else(none)?;
    let fork = scenario.turns.get(scene.rounds()).or(scenario.turns.last()).ok_or_else(none)?;
    let turn = scene.chosen(fork);
    let values = scene.values(scenario);
    let name = |value| scenario.names.name(value).to_owned();
    if let Some(value) = turn.steps.iter().find_map(|step| nameless(step, &values)) {
        return Err(CastError::NoTool { origin: origin(), scenario: number, name: name(value) });
    }
    let pace = |step| {
        pace(step, &values).map_err(|(value, max)| CastError::NotANumber {
            origin: origin(),
            scenario: number,
            name: name(value),
            max,
            found: values.get(value).cloned().unwrap_or_default(),
        })
    };
    let paces = turn.steps.iter().map(pace).collect::<Result<_, _>>()?;
    let read_chars = if turn.usage.is_some() { 0 } else { chars_of(request) };
    Ok(Cast { turn, values, paces, attempt: request.attempt, read_chars })
}

/// What of a request decides.
struct Scene<'a> {
    /// The second half of `provider/model`.
    model: &'a str,
    /// What the user wrote last.
    said: String,
    /// What happened since.
    since: &'a [HistoryEntry],
    /// The first tool on offer that the file does not name.
    tool: Option<&'a str>,
}

impl<'a> Scene<'a> {
    fn of(scenarios: &Scenarios, request: &'a ModelRequest) -> Self {
        let (said, since) = last_user_message(&request.history);
        let model = request.model.split_once('/').map_or(request.model.as_str(), |(_, model)| model);
        let tool = request.tools.iter().map(|tool| tool.name.as_str()).find(|name| !scenarios.called.contains(*name));
        Self { model, said, since, tool }
    }

    fn is_of(&self, scenario: &Scenario) -> bool {
        scenario.is_for(self.model) && scenario.pattern.as_ref().is_none_or(|pattern| pattern.is_match(&self.said))
    }

    /// How many turns had their tools answered, since the user spoke or another agent handed over.
    fn rounds(&self) -> usize {
        let turns = self.since.chunk_by(|a, b| is_result(a) == is_result(b));
        let results = turns.filter(|group| group.first().is_some_and(is_result));
        let handed_over = |group: &&[HistoryEntry]| group.iter().any(|entry| self.hands_over(entry));
        results.rev().take_while(|group| !handed_over(group)).count()
    }

    /// Is it the result of a hand-off that took place?
    fn hands_over(&self, entry: &HistoryEntry) -> bool {
        let HistoryEntry::Result { call_id: answered, status: ResultStatus::Completed, .. } = entry else {
            return false;
        };
        let transfer = handoff_tool_name("");
        self.since.iter().any(|entry| match entry {
            HistoryEntry::Call { call_id, name, .. } => call_id == answered && name.starts_with(&transfer),
            _ => false,
        })
    }

    fn chosen(&self, fork: &Fork) -> Arc<Turn> {
        let first = fork.guarded.iter().find(|(when, _)| self.holds(when)).map(|(_, turn)| turn);
        Arc::clone(first.unwrap_or(&fork.otherwise))
    }

    fn holds(&self, when: &When) -> bool {
        let status = self.last_result().map(|(status, _)| status);
        (when.statuses.is_empty() || status.is_some_and(|status| when.statuses.contains(&status)))
            && when.tool.is_none_or(|wanted| wanted == self.tool.is_some())
    }

    fn last_result(&self) -> Option<(ResultStatus, &'a [ContentPart])> {
        self.since.iter().rev().find_map(|entry| match entry {
            HistoryEntry::Result { status, content, .. } => Some((*status, content.as_slice())),
            _ => None,
        })
    }

    fn values(&self, scenario: &Scenario) -> Vec<String> {
        let captures = scenario.pattern.as_ref().and_then(|pattern| pattern.captures(&self.said));
        let reference = last_reference(self.since).map(|id| id.to_string());
        let result = self.last_result().map(|(_, content)| words(content));
        scenario.names.values(|value, name| match value {
            REF => reference.as_deref(),
            TOOL => self.tool,
            RESULT => result.as_deref(),
            _ => Some(captures.as_ref()?.name(name)?.as_str()),
        })
    }
}

/// What the user wrote last, and what happened since.
fn last_user_message(history: &[HistoryEntry]) -> (String, &[HistoryEntry]) {
    let last = history.iter().enumerate().rev().find_map(|(place, entry)| match entry {
        HistoryEntry::User { content } => Some((place, content)),
        _ => None,
    });
    let Some((place, content)) = last else { return (String::new(), history) };
    (words(content), history.get(place + 1..).unwrap_or_default())
}

/// The texts of it. What carries tags was put there by somebody else.
fn words(content: &[ContentPart]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        ContentPart::Text { text, tags, .. } if tags.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn is_result(entry: &HistoryEntry) -> bool {
    matches!(entry, HistoryEntry::Result { .. })
}

/// The number of the reference group that tools gave last.
fn last_reference(since: &[HistoryEntry]) -> Option<u32> {
    since.iter().rev().find_map(|entry| match entry {
        HistoryEntry::Result { content, .. } => content.iter().rev().find_map(|part| match part {
            ContentPart::Text { id, .. } | ContentPart::ImageUrl { id, .. } => *id,
            ContentPart::File { .. } => None,
        }),
        _ => None,
    })
}

/// A call that would have no name: which value should have given it?
fn nameless(step: &Step, values: &[String]) -> Option<usize> {
    match step {
        Step::Say(Say { opens: Some(Opening::Call(name)), .. }) => name.void_value(values),
        _ => None,
    }
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
    let parts = |content: &[ContentPart]| {
        let texts = content.iter().map(|part| match part {
            ContentPart::Text { text, .. } => count(text),
            ContentPart::ImageUrl { .. } | ContentPart::File { .. } => 0,
        });
        texts.sum::<u64>()
    };
    let entries = request.history.iter().map(|entry| match entry {
        HistoryEntry::User { content } | HistoryEntry::Result { content, .. } => parts(content),
        HistoryEntry::Assistant { text, .. } | HistoryEntry::Summary { text } | HistoryEntry::System { text } => {
            count(text)
        }
        HistoryEntry::Call { arguments, .. } => count(arguments),
        HistoryEntry::Reasoning { .. } | HistoryEntry::Hosted { .. } | HistoryEntry::GeneratedImages { .. } => 0,
    });
    count(&request.instructions) + entries.sum::<u64>()
}
