//! Which turn of which scenario a request plays, and what its placeholders stand for.
//!
//! All of it is read from the request, nothing is remembered: the model and the last user message choose the scenario,
//! and how often tools answered since then is the number of turns that it has behind it. So a turn that is tried again
//! after a failure or a crash is the same turn, and a thread's next run begins with the first one.

use super::scenario::{
    EmitStep, ItemStart, NumberOrPlaceholder, Scenario, ScenarioStep, ScenarioTurn, Scenarios, TurnChoice,
    TurnCondition,
};
use super::template::{REF_INDEX, RESULT_INDEX, TOOL_INDEX};
use model::content::ContentPart;
use model::definition::handoff_tool_name;
use model::error::ErrorCode;
use model::history::HistoryEntry;
use model::item::ResultStatus;
use model::model_turn::ModelRequest;
use std::sync::Arc;
use std::time::Duration;

/// A turn with everything that this request gives it.
#[derive(Debug)]
pub(super) struct SelectedTurn {
    pub(super) turn: Arc<ScenarioTurn>,
    /// What the scenario's names stand for, in their order.
    pub(super) values: Vec<String>,
    /// One for each step.
    pub(super) timings: Vec<StepTiming>,
    /// Which try it is, from 1.
    pub(super) attempt: u32,
    /// Characters that the model was given.
    pub(super) prompt_chars: u64,
}

/// How a step moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepTiming {
    /// How many deltas.
    pub(super) delta_count: u64,
    /// The time between two of them, or a pause.
    pub(super) interval: Duration,
}

/// Why nothing can be played.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectTurnError {
    #[error("no scenario of {origin} for the model `{model}` matches the last user message")]
    NoScenario { origin: String, model: String },
    #[error("`{name}` must be a whole number from 0 to {max} in scenario {scenario} of {origin}, not `{found}`")]
    NotANumber { origin: String, scenario: usize, name: String, max: u64, found: String },
    #[error("`{name}` stands for nothing in scenario {scenario} of {origin}, and a call needs the name of a tool")]
    NoTool { origin: String, scenario: usize, name: String },
}

impl SelectTurnError {
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::NoScenario { .. } => ErrorCode::NoScenario,
            Self::NotANumber { .. } | Self::NoTool { .. } => ErrorCode::ScenarioValue,
        }
    }
}

pub(super) fn select_turn(scenarios: &Scenarios, request: &ModelRequest) -> Result<SelectedTurn, SelectTurnError> {
    let scene = MatchContext::from_request(scenarios, request);
    let origin = || scenarios.origin.clone();
    let none = || SelectTurnError::NoScenario { origin: origin(), model: scene.model.to_owned() };
    let mut numbered = (1..).zip(&scenarios.scenarios);
    let (number, scenario) = numbered.find(|(_, scenario)| scene.matches(scenario)).ok_or_else(none)?;
    let fork = scenario.choices.get(scene.answered_turns()).or(scenario.choices.last()).ok_or_else(none)?;
    let turn = scene.choose_turn(fork);
    let values = scene.placeholder_values(scenario);
    let name = |value| scenario.placeholders.name(value).to_owned();
    if let Some(value) = turn.steps.iter().find_map(|step| unnamed_call(step, &values)) {
        return Err(SelectTurnError::NoTool { origin: origin(), scenario: number, name: name(value) });
    }
    let pace = |step| {
        step_timing(step, &values).map_err(|(value, max)| SelectTurnError::NotANumber {
            origin: origin(),
            scenario: number,
            name: name(value),
            max,
            found: values.get(value).cloned().unwrap_or_default(),
        })
    };
    let paces = turn.steps.iter().map(pace).collect::<Result<_, _>>()?;
    let read_chars = if turn.usage.is_some() { 0 } else { prompt_chars(request) };
    Ok(SelectedTurn { turn, values, timings: paces, attempt: request.attempt, prompt_chars: read_chars })
}

/// What of a request decides.
struct MatchContext<'a> {
    /// The second half of `provider/model`.
    model: &'a str,
    /// What the user wrote last.
    user_text: String,
    /// What happened since.
    entries_since: &'a [HistoryEntry],
    /// The first tool on offer that the file does not name.
    tool: Option<&'a str>,
}

impl<'a> MatchContext<'a> {
    fn from_request(scenarios: &Scenarios, request: &'a ModelRequest) -> Self {
        let (said, since) = last_user_message(&request.history);
        let model = request.model.split_once('/').map_or(request.model.as_str(), |(_, model)| model);
        let tool =
            request.tools.iter().map(|tool| tool.name.as_str()).find(|name| !scenarios.called_tools.contains(*name));
        Self { model, user_text: said, entries_since: since, tool }
    }

    fn matches(&self, scenario: &Scenario) -> bool {
        scenario.is_for_model(self.model)
            && scenario.pattern.as_ref().is_none_or(|pattern| pattern.is_match(&self.user_text))
    }

    /// How many turns had their tools answered, since the user spoke or another agent handed over.
    fn answered_turns(&self) -> usize {
        let turns = self.entries_since.chunk_by(|a, b| is_result(a) == is_result(b));
        let results = turns.filter(|group| group.first().is_some_and(is_result));
        let handed_over = |group: &&[HistoryEntry]| group.iter().any(|entry| self.is_handoff_result(entry));
        results.rev().take_while(|group| !handed_over(group)).count()
    }

    /// Is it the result of a hand-off that took place?
    fn is_handoff_result(&self, entry: &HistoryEntry) -> bool {
        let HistoryEntry::Result { call_id: answered, status: ResultStatus::Completed, .. } = entry else {
            return false;
        };
        let transfer = handoff_tool_name("");
        self.entries_since.iter().any(|entry| match entry {
            HistoryEntry::Call { call_id, name, .. } => call_id == answered && name.starts_with(&transfer),
            _ => false,
        })
    }

    fn choose_turn(&self, fork: &TurnChoice) -> Arc<ScenarioTurn> {
        let first = fork.conditional.iter().find(|(when, _)| self.is_met(when)).map(|(_, turn)| turn);
        Arc::clone(first.unwrap_or(&fork.fallback))
    }

    fn is_met(&self, when: &TurnCondition) -> bool {
        let status = self.last_result().map(|(status, _)| status);
        (when.statuses.is_empty() || status.is_some_and(|status| when.statuses.contains(&status)))
            && when.has_tool.is_none_or(|wanted| wanted == self.tool.is_some())
    }

    fn last_result(&self) -> Option<(ResultStatus, &'a [ContentPart])> {
        self.entries_since.iter().rev().find_map(|entry| match entry {
            HistoryEntry::Result { status, content, .. } => Some((*status, content.as_slice())),
            _ => None,
        })
    }

    fn placeholder_values(&self, scenario: &Scenario) -> Vec<String> {
        let captures = scenario.pattern.as_ref().and_then(|pattern| pattern.captures(&self.user_text));
        let reference = last_reference_id(self.entries_since).map(|id| id.to_string());
        let result = self.last_result().map(|(_, content)| untagged_text(content));
        scenario.placeholders.resolve_values(|value, name| match value {
            REF_INDEX => reference.as_deref(),
            TOOL_INDEX => self.tool,
            RESULT_INDEX => result.as_deref(),
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
    (untagged_text(content), history.get(place + 1..).unwrap_or_default())
}

/// The texts of it. What carries tags was put there by somebody else.
fn untagged_text(content: &[ContentPart]) -> String {
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
fn last_reference_id(since: &[HistoryEntry]) -> Option<u32> {
    since.iter().rev().find_map(|entry| match entry {
        HistoryEntry::Result { content, .. } => content.iter().rev().find_map(|part| match part {
            ContentPart::Text { id, .. } | ContentPart::ImageUrl { id, .. } => *id,
            ContentPart::File { .. } => None,
        }),
        _ => None,
    })
}

/// A call that would have no name: which value should have given it?
fn unnamed_call(step: &ScenarioStep, values: &[String]) -> Option<usize> {
    match step {
        ScenarioStep::Emit(EmitStep { starts: Some(ItemStart::Call(name)), .. }) => {
            name.first_empty_placeholder(values)
        }
        _ => None,
    }
}

/// How the step moves, or which value is not the number that it should be.
fn step_timing(step: &ScenarioStep, values: &[String]) -> Result<StepTiming, (usize, u64)> {
    let number = |amount| match amount {
        NumberOrPlaceholder::Fixed(number) => Ok(number),
        NumberOrPlaceholder::Placeholder { value, max } => {
            let number = values.get(value).and_then(|text| text.parse().ok());
            number.filter(|number| *number <= max).ok_or((value, max))
        }
    };
    match step {
        ScenarioStep::Pause(pause) => {
            Ok(StepTiming { delta_count: 0, interval: Duration::from_millis(number(*pause)?) })
        }
        ScenarioStep::Emit(say) => {
            let once = NumberOrPlaceholder::Fixed(u64::try_from(say.deltas.len()).unwrap_or(u64::MAX));
            let deltas = number(say.repeat.unwrap_or(once))?;
            Ok(StepTiming { delta_count: deltas, interval: Duration::from_millis(number(say.interval_ms)?) })
        }
        ScenarioStep::Fail { .. } => Ok(StepTiming::default()),
    }
}

/// How much the model was given to read.
fn prompt_chars(request: &ModelRequest) -> u64 {
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
