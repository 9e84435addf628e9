//! Selects the scenario and the turn for a request, and the values of the placeholders.
//!
//! Only the request counts: the model and the last user message select the scenario, and the number of answered tool turns
//! since then selects the turn. So a retry after a failure or a crash plays the same turn, and the next run of a thread
//! starts with the first one.

use super::scenario::{
    EmitStep, ItemStart, NumberOrPlaceholder, Scenario, ScenarioStep, ScenarioTurn, Scenarios, TurnChoice,
    TurnCondition,
};
use super::template::{ClockUs, REF_INDEX, RESULT_INDEX, TOOL_INDEX, Template, TemplateContext, TemplateEscaping};
use crate::user_text::{LastUserMessage, last_user_message, untagged_text};
use model::content::ContentPart;
use model::definition::handoff_tool_name;
use model::error::ErrorCode;
use model::history::HistoryEntry;
use model::item::ResultStatus;
use model::model_turn::ModelRequest;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct SelectedTurn {
    pub(super) turn: Arc<ScenarioTurn>,
    /// Of the placeholders, in their order.
    pub(super) values: Vec<String>,
    /// One for each step.
    pub(super) timings: Vec<StepTiming>,
    /// Counted from 1.
    pub(super) attempt: u32,
    /// For the estimated usage.
    pub(super) prompt_chars: u64,
}

impl SelectedTurn {
    pub(super) fn render(
        &self,
        template: &Template,
        index: u64,
        clock: &ClockUs,
        escaping: TemplateEscaping,
    ) -> String {
        template.render(&TemplateContext { values: &self.values, index, clock, escaping })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepTiming {
    pub(super) delta_count: u64,
    /// Between two deltas, or of a pause.
    pub(super) interval: Duration,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectTurnError {
    #[error("no scenario of {origin} for the model `{model}` matches the last user message")]
    NoScenario { origin: String, model: String },
    #[error("`{name}` must be a whole number from 0 to {max} in scenario {scenario} of {origin}, not `{found}`")]
    NotANumber { origin: String, scenario: usize, name: String, max: u64, found: String },
    #[error("`{name}` has no value in scenario {scenario} of {origin}, and a call needs the name of a tool")]
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
    let context = MatchContext::from_request(scenarios, request);
    let origin = || scenarios.origin.clone();
    let no_scenario = || SelectTurnError::NoScenario { origin: origin(), model: context.model.to_owned() };
    let mut numbered = (1..).zip(&scenarios.scenarios);
    let (number, scenario) = numbered.find(|(_, scenario)| context.matches(scenario)).ok_or_else(no_scenario)?;
    let choice = scenario.choices.get(context.answered_turns()).or(scenario.choices.last()).ok_or_else(no_scenario)?;
    let turn = context.choose_turn(choice);
    let values = context.placeholder_values(scenario);
    let name = |value| scenario.placeholders.name(value).to_owned();
    if let Some(value) = turn.steps.iter().find_map(|step| unnamed_call(step, &values)) {
        return Err(SelectTurnError::NoTool { origin: origin(), scenario: number, name: name(value) });
    }
    let timing = |step| {
        step_timing(step, &values).map_err(|(value, max)| SelectTurnError::NotANumber {
            origin: origin(),
            scenario: number,
            name: name(value),
            max,
            found: values.get(value).cloned().unwrap_or_default(),
        })
    };
    let timings = turn.steps.iter().map(timing).collect::<Result<_, _>>()?;
    let prompt_chars = if turn.usage.is_some() { 0 } else { prompt_chars(request) };
    Ok(SelectedTurn { turn, values, timings, attempt: request.attempt, prompt_chars })
}

/// What selects the scenario and the turn.
struct MatchContext<'a> {
    /// The second half of `provider/model`.
    model: &'a str,
    user_text: String,
    has_image: bool,
    entries_since: Vec<&'a HistoryEntry>,
    /// The first tool of the request that the file does not name.
    tool: Option<&'a str>,
}

impl<'a> MatchContext<'a> {
    fn from_request(scenarios: &Scenarios, request: &'a ModelRequest) -> Self {
        let LastUserMessage { text, has_image, entries_since } = last_user_message(&request.history);
        let model = request.model.split_once('/').map_or(request.model.as_str(), |(_, model)| model);
        let tool =
            request.tools.iter().map(|tool| tool.name.as_str()).find(|name| !scenarios.called_tools.contains(*name));
        let entries_since = entries_since.iter().map(AsRef::as_ref).collect();
        Self { model, user_text: text, has_image, entries_since, tool }
    }

    fn matches(&self, scenario: &Scenario) -> bool {
        scenario.is_for_model(self.model)
            && scenario.has_image.is_none_or(|wanted| wanted == self.has_image)
            && scenario.pattern.as_ref().is_none_or(|pattern| pattern.is_match(&self.user_text))
    }

    /// Turns whose tools were answered, since the last user message or hand-off.
    fn answered_turns(&self) -> usize {
        let turns = self.entries_since.chunk_by(|a, b| is_result(a) == is_result(b));
        let results = turns.filter(|group| group.first().is_some_and(|entry| is_result(entry)));
        let has_handoff = |group: &&[&HistoryEntry]| group.iter().any(|entry| self.is_handoff_result(entry));
        results.rev().take_while(|group| !has_handoff(group)).count()
    }

    /// Whether it is the result of a successful hand-off.
    fn is_handoff_result(&self, entry: &HistoryEntry) -> bool {
        let HistoryEntry::Result { call_id: answered, status: ResultStatus::Completed, .. } = entry else {
            return false;
        };
        let handoff_prefix = handoff_tool_name("");
        self.entries_since.iter().any(|entry| match entry {
            HistoryEntry::Call { call_id, name, .. } => call_id == answered && name.starts_with(&handoff_prefix),
            _ => false,
        })
    }

    fn choose_turn(&self, choice: &TurnChoice) -> Arc<ScenarioTurn> {
        let first = choice.conditional.iter().find(|(condition, _)| self.is_met(condition)).map(|(_, turn)| turn);
        Arc::clone(first.unwrap_or(&choice.fallback))
    }

    fn is_met(&self, condition: &TurnCondition) -> bool {
        let status = self.last_result().map(|(status, _)| status);
        (condition.statuses.is_empty() || status.is_some_and(|status| condition.statuses.contains(&status)))
            && condition.has_tool.is_none_or(|wanted| wanted == self.tool.is_some())
    }

    fn last_result(&self) -> Option<(ResultStatus, &'a [ContentPart])> {
        self.entries_since.iter().rev().find_map(|entry| match entry {
            HistoryEntry::Result { status, content, .. } => Some((*status, content.as_slice())),
            _ => None,
        })
    }

    fn placeholder_values(&self, scenario: &Scenario) -> Vec<String> {
        let captures = scenario.pattern.as_ref().and_then(|pattern| pattern.captures(&self.user_text));
        let reference = last_reference_id(&self.entries_since).map(|id| id.to_string());
        let result = self.last_result().map(|(_, content)| untagged_text(content));
        scenario.placeholders.resolve_values(|value, name| match value {
            REF_INDEX => reference.as_deref(),
            TOOL_INDEX => self.tool,
            RESULT_INDEX => result.as_deref(),
            _ => Some(captures.as_ref()?.name(name)?.as_str()),
        })
    }
}

fn is_result(entry: &HistoryEntry) -> bool {
    matches!(entry, HistoryEntry::Result { .. })
}

/// The id of the last reference group in a tool's result.
fn last_reference_id(entries: &[&HistoryEntry]) -> Option<u32> {
    entries.iter().rev().find_map(|entry| match entry {
        HistoryEntry::Result { content, .. } => content.iter().rev().find_map(|part| match part {
            ContentPart::Text { id, .. } | ContentPart::ImageUrl { id, .. } => *id,
            ContentPart::File { .. } => None,
        }),
        _ => None,
    })
}

/// The placeholder that leaves a call without a name.
fn unnamed_call(step: &ScenarioStep, values: &[String]) -> Option<usize> {
    match step {
        ScenarioStep::Emit(EmitStep { starts: Some(ItemStart::Call(name)), .. }) => {
            name.first_empty_placeholder(values)
        }
        _ => None,
    }
}

/// The error is the placeholder that is not a number, and the largest number that it may be.
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
        ScenarioStep::Emit(step) => {
            let once = NumberOrPlaceholder::Fixed(u64::try_from(step.deltas.len()).unwrap_or(u64::MAX));
            let delta_count = number(step.repeat.unwrap_or(once))?;
            Ok(StepTiming { delta_count, interval: Duration::from_millis(number(step.interval_ms)?) })
        }
        ScenarioStep::Fail { .. } => Ok(StepTiming::default()),
    }
}

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
