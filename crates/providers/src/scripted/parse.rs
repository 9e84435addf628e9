//! The grammar of scenario files: TOML in, [`Scenarios`] or one precise error out.
//!
//! Unknown keys, invalid numbers and unreachable scenarios are refused, so that a typing mistake shows up at the start and
//! not in the middle of a demo.

use super::error::{ScenarioError, ScenarioFault, ScenarioPosition};
use super::limits::{
    ERROR_TIMES_MAX, IMAGE_URL_BYTES_MAX, MATCH_REGEX_BYTES_MAX, PAUSE_MS_MAX, REPEAT_MAX, SCENARIO_FILE_BYTES_MAX,
    TOKENS_MAX,
};
use super::scenario::{
    EmitStep, ItemStart, NumberOrPlaceholder, Scenario, ScenarioStep, ScenarioTurn, Scenarios, StepDeltas, TurnChoice,
    TurnCondition,
};
use super::template::{Placeholders, Template};
use super::toml_fields::{SourceContext, TomlField, TomlTable};
use model::error::ErrorInfo;
use model::event::StopReason;
use model::item::ResultStatus;
use model::model_turn::ModelFailure;
use model::usage::Usage;
use regex::{Regex, RegexBuilder};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use toml::de::DeTable;

type ParseResult<T> = Result<T, ScenarioError>;

/// A step has exactly one of these.
const STEP_KEYS: &[&str] = &["text", "reasoning", "call", "hosted", "approval", "computer", "pause_ms", "error"];
const STOP_VALUES: &[&str] = &["stop", "max_tokens", "content_filter"];
const CONDITION_KEYS: &[&str] = &["status", "tool"];
const STATUS_VALUES: &[&str] = &["completed", "failed", "rejected", "incomplete", "unknown"];

impl Scenarios {
    /// Parses scenarios. The error is the first mistake, with its line in the file `origin`.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > SCENARIO_FILE_BYTES_MAX {
            return Err(ScenarioError::TooLong { origin: origin.to_owned() });
        }
        let scenarios = parse_scenarios(text, origin)?;
        let called_tools = scenarios.iter().flat_map(Scenario::called_tools).map(str::to_owned).collect();
        Ok(Self { origin: origin.to_owned(), scenarios, called_tools })
    }

    /// Reads and parses a file.
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

fn parse_scenarios(text: &str, origin: &str) -> ParseResult<Vec<Scenario>> {
    let source = SourceContext { origin, text, position: ScenarioPosition::default() };
    let file = DeTable::parse(text).map_err(|error| ScenarioError::Syntax {
        origin: origin.to_owned(),
        line: source.line_of_byte(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    let file = TomlTable::new(source, 0..0, file.get_ref());
    file.deny_unknown_keys(&["scenario"])?;
    let mut scenarios: Vec<Scenario> = Vec::new();
    for field in file.require("scenario")?.as_array()? {
        let number = scenarios.len() + 1;
        let field = field.at_position(ScenarioPosition { scenario: number, ..ScenarioPosition::default() });
        let models = parse_models(&field.as_table()?)?;
        if let Some(by) = find_shadowing(&scenarios, &models) {
            return Err(field.fault(ScenarioFault::Shadowed { by }));
        }
        scenarios.push(parse_scenario(&field.as_table()?, models)?);
    }
    Ok(scenarios)
}

fn parse_models(fields: &TomlTable<'_>) -> ParseResult<Vec<String>> {
    let Some(field) = fields.get("model") else { return Ok(Vec::new()) };
    let models = parse_strings(&field)?;
    if models.iter().any(String::is_empty) {
        return Err(field.fault(ScenarioFault::Empty { key: "model".to_owned() }));
    }
    Ok(models)
}

/// The scenario that is played whenever one of these models could play the next one; the last, if it takes several.
fn find_shadowing(previous: &[Scenario], models: &[String]) -> Option<usize> {
    let catch_alls = || (1..).zip(previous).filter(|(_, scenario)| scenario.is_catch_all());
    if models.is_empty() {
        return catch_alls().find(|(_, scenario)| scenario.models.is_empty()).map(|(number, _)| number);
    }
    let mut last = None;
    for model in models {
        let (number, _) = catch_alls().find(|(_, scenario)| scenario.is_for_model(model))?;
        last = last.max(Some(number));
    }
    last
}

fn parse_scenario(fields: &TomlTable<'_>, models: Vec<String>) -> ParseResult<Scenario> {
    fields.deny_unknown_keys(&["model", "match", "image", "defaults", "turn"])?;
    let pattern = fields.optional("match", parse_pattern)?;
    let captures = pattern.iter().flat_map(|pattern| pattern.capture_names().flatten()).map(str::to_owned);
    let mut names = Placeholders::new(captures);
    if let Some(defaults) = fields.get("defaults") {
        let defaults = defaults.as_table()?;
        for field in defaults.keys().filter_map(|key| defaults.get(key)) {
            let unknown =
                || ScenarioFault::UnknownPlaceholder { key: "defaults".to_owned(), name: field.key.to_owned() };
            let value = names.find(field.key).ok_or_else(|| field.fault(unknown()))?;
            names.set_default(value, field.as_string_or_integer()?);
        }
    }
    let turns = parse_turns(&fields.require("turn")?, &names)?;
    if turns.is_empty() {
        return Err(fields.source.fault(&fields.span, ScenarioFault::Empty { key: "turn".to_owned() }));
    }
    let has_image = fields.optional("image", TomlField::as_bool)?;
    Ok(Scenario { models, pattern, has_image, placeholders: names, choices: turns })
}

/// Turns with `when` and the next turn without are alternatives for one turn.
fn parse_turns(list: &TomlField<'_>, names: &Placeholders) -> ParseResult<Vec<TurnChoice>> {
    let mut choices: Vec<TurnChoice> = Vec::new();
    let mut conditional: Vec<(TurnCondition, Arc<ScenarioTurn>)> = Vec::new();
    let mut last = None;
    for (number, field) in (1..).zip(list.as_array()?) {
        let field = field.at_position(ScenarioPosition { turn: number, ..field.source.position });
        let fields = field.as_table()?;
        let turn = Arc::new(parse_turn(&fields, names)?);
        match fields.get("when") {
            Some(field) => conditional.push((parse_condition(&field)?, turn)),
            None => choices.push(TurnChoice { conditional: std::mem::take(&mut conditional), fallback: turn }),
        }
        last = Some(field);
    }
    match last.filter(|_| !conditional.is_empty()) {
        Some(last) => Err(last.fault(ScenarioFault::MissingFallbackTurn)),
        None => Ok(choices),
    }
}

fn parse_condition(field: &TomlField<'_>) -> ParseResult<TurnCondition> {
    let fields = field.as_table()?;
    fields.deny_unknown_keys(CONDITION_KEYS)?;
    let condition = TurnCondition {
        statuses: fields.optional("status", parse_statuses)?.unwrap_or_default(),
        has_tool: fields.optional("tool", TomlField::as_bool)?,
    };
    if condition.statuses.is_empty() && condition.has_tool.is_none() {
        return Err(field.fault(ScenarioFault::EmptyCondition { allowed: CONDITION_KEYS }));
    }
    Ok(condition)
}

fn parse_statuses(field: &TomlField<'_>) -> ParseResult<Vec<ResultStatus>> {
    let unknown =
        |value: &str| ScenarioFault::UnknownValue { key: "status", found: value.to_owned(), allowed: STATUS_VALUES };
    let parse_status = |value: &String| match value.as_str() {
        "completed" => Ok(ResultStatus::Completed),
        "failed" => Ok(ResultStatus::Failed),
        "rejected" => Ok(ResultStatus::Rejected),
        "incomplete" => Ok(ResultStatus::Incomplete),
        "unknown" => Ok(ResultStatus::Unknown),
        value => Err(field.fault(unknown(value))),
    };
    parse_strings(field)?.iter().map(parse_status).collect()
}

fn parse_pattern(field: &TomlField<'_>) -> ParseResult<Regex> {
    let pattern = RegexBuilder::new(field.as_str()?).case_insensitive(true).size_limit(MATCH_REGEX_BYTES_MAX).build();
    let pattern = pattern.map_err(|error| field.fault(ScenarioFault::InvalidRegex { message: error.to_string() }))?;
    match pattern.capture_names().flatten().find(|name| Placeholders::is_reserved(name)) {
        Some(name) => Err(field.fault(ScenarioFault::ReservedName { name: name.to_owned() })),
        None => Ok(pattern),
    }
}

fn parse_turn(fields: &TomlTable<'_>, names: &Placeholders) -> ParseResult<ScenarioTurn> {
    fields.deny_unknown_keys(&["when", "steps", "usage", "stop"])?;
    let mut steps: Vec<ScenarioStep> = Vec::new();
    for field in fields.require("steps")?.as_array()? {
        let field = field.at_position(ScenarioPosition { step: steps.len() + 1, ..field.source.position });
        if steps.last().is_some_and(ScenarioStep::is_final) {
            return Err(field.fault(ScenarioFault::StepAfterError));
        }
        steps.push(parse_step(&field.as_table()?, names)?);
    }
    let fails = steps.last().is_some_and(ScenarioStep::is_final);
    let calls =
        steps.iter().any(|step| matches!(step, ScenarioStep::Emit(EmitStep { deltas: StepDeltas::Arguments(_), .. })));
    let stop = match fields.get("stop") {
        Some(field) if fails => return Err(field.fault(ScenarioFault::StopWithError)),
        Some(field) => parse_stop_reason(&field)?,
        None if calls => StopReason::ToolCalls,
        None => StopReason::Stop,
    };
    let usage = fields.optional("usage", parse_usage)?;
    let is_complete = stop.is_complete() && !fails;
    assign_items(&mut steps, if is_complete { LastItem::Finished } else { LastItem::Truncated });
    Ok(ScenarioTurn { steps, usage, stop })
}

/// The last item of a turn that fails or reaches a limit is truncated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastItem {
    Finished,
    Truncated,
}

/// Decides which step starts and which finishes an item.
fn assign_items(steps: &mut [ScenarioStep], last_item: LastItem) {
    let mut last: Option<&mut EmitStep> = None;
    for step in steps {
        let ScenarioStep::Emit(step) = step else { continue };
        if let Some(previous) = last.take() {
            previous.is_last = !continue_item(step, previous);
        }
        last = Some(step);
    }
    if let Some(last) = last {
        last.is_last = last_item == LastItem::Finished;
    }
}

/// Text continues the message before it, and reasoning is the next part of the reasoning before it, despite pauses in
/// between. Everything else is a new item.
fn continue_item(step: &mut EmitStep, previous: &EmitStep) -> bool {
    let is_continued = match (&mut step.deltas, &previous.deltas) {
        (StepDeltas::Text(_), StepDeltas::Text(_)) => true,
        (StepDeltas::Reasoning { part, .. }, StepDeltas::Reasoning { part: previous_part, .. }) => {
            *part = previous_part + 1;
            true
        }
        _ => false,
    };
    step.slot = previous.slot + u32::from(!is_continued);
    if is_continued {
        step.starts = None;
    }
    is_continued
}

fn parse_step(fields: &TomlTable<'_>, names: &Placeholders) -> ParseResult<ScenarioStep> {
    let mut kinds = STEP_KEYS.iter().filter_map(|kind| fields.get(kind));
    let (Some(field), None) = (kinds.next(), kinds.next()) else {
        let found = fields.keys().map(str::to_owned).collect();
        return Err(fields.source.fault(&fields.span, ScenarioFault::NotOneStepKey { allowed: STEP_KEYS, found }));
    };
    match field.key {
        "text" => {
            fields.deny_unknown_keys(&["text", "repeat", "every_ms"])?;
            parse_emit(fields, names, ItemStart::Message, StepDeltas::Text(parse_pieces(&field, names)?))
        }
        "reasoning" => {
            fields.deny_unknown_keys(&["reasoning", "repeat", "every_ms"])?;
            let pieces = parse_pieces(&field, names)?;
            parse_emit(fields, names, ItemStart::Reasoning, StepDeltas::Reasoning { part: 0, pieces })
        }
        "call" => {
            fields.deny_unknown_keys(&["call", "arguments", "every_ms"])?;
            let arguments = fields.optional("arguments", |field| parse_pieces(field, names))?;
            let arguments = arguments.unwrap_or_else(|| vec![Template::compile("{}", names)]);
            let name = Template::compile(&parse_non_empty(&field)?, names);
            parse_emit(fields, names, ItemStart::Call(name), StepDeltas::Arguments(arguments))
        }
        "hosted" => {
            fields.deny_unknown_keys(&["hosted", "states", "images", "every_ms"])?;
            let states = fields.optional("states", parse_strings)?.unwrap_or_default();
            let images = fields.optional("images", parse_images)?.unwrap_or_default();
            parse_emit(
                fields,
                names,
                ItemStart::Hosted(parse_non_empty(&field)?),
                StepDeltas::Hosted { states, images },
            )
        }
        "approval" => {
            fields.deny_unknown_keys(&["approval", "server", "arguments", "every_ms"])?;
            let arguments = fields.optional("arguments", |field| parse_pieces(field, names))?;
            let arguments = arguments.unwrap_or_else(|| vec![Template::compile("{}", names)]);
            let (name, server_label) = (parse_non_empty(&field)?, parse_non_empty(&fields.require("server")?)?);
            parse_emit(fields, names, ItemStart::Approval { name, server_label }, StepDeltas::Arguments(arguments))
        }
        "computer" => {
            fields.deny_unknown_keys(&["computer", "every_ms"])?;
            parse_emit(fields, names, ItemStart::Computer, StepDeltas::Arguments(parse_pieces(&field, names)?))
        }
        "pause_ms" => {
            fields.deny_unknown_keys(&["pause_ms"])?;
            Ok(ScenarioStep::Pause(field.as_number_or_placeholder(PAUSE_MS_MAX, names)?))
        }
        _ => {
            fields.deny_unknown_keys(&["error"])?;
            parse_failure(&field.as_table()?, names)
        }
    }
}

fn parse_emit(
    fields: &TomlTable<'_>,
    names: &Placeholders,
    start: ItemStart,
    deltas: StepDeltas,
) -> ParseResult<ScenarioStep> {
    let repeat = fields.optional("repeat", |field| field.as_number_or_placeholder(REPEAT_MAX, names))?;
    let interval_ms = fields.optional("every_ms", |field| field.as_number_or_placeholder(PAUSE_MS_MAX, names))?;
    let interval_ms = interval_ms.unwrap_or(NumberOrPlaceholder::Fixed(0));
    Ok(ScenarioStep::Emit(EmitStep { slot: 0, starts: Some(start), deltas, repeat, interval_ms, is_last: false }))
}

fn parse_pieces(field: &TomlField<'_>, names: &Placeholders) -> ParseResult<Vec<Template>> {
    Ok(parse_strings(field)?.iter().map(|text| Template::compile(text, names)).collect())
}

/// One string or several, never none.
fn parse_strings(field: &TomlField<'_>) -> ParseResult<Vec<String>> {
    let texts = field.as_strings()?;
    if texts.is_empty() {
        return Err(field.fault(ScenarioFault::Empty { key: field.key.to_owned() }));
    }
    texts.iter().map(|field| field.as_str().map(str::to_owned)).collect()
}

fn parse_images(field: &TomlField<'_>) -> ParseResult<Vec<String>> {
    for url in field.as_strings()? {
        if url.as_str()?.len() > IMAGE_URL_BYTES_MAX {
            let max = u64::try_from(IMAGE_URL_BYTES_MAX).unwrap_or(u64::MAX);
            return Err(url.fault(ScenarioFault::TooLarge { key: "images".to_owned(), max }));
        }
    }
    parse_strings(field)
}

fn parse_non_empty(field: &TomlField<'_>) -> ParseResult<String> {
    match field.as_str()? {
        "" => Err(field.fault(ScenarioFault::Empty { key: field.key.to_owned() })),
        name => Ok(name.to_owned()),
    }
}

fn parse_failure(fields: &TomlTable<'_>, names: &Placeholders) -> ParseResult<ScenarioStep> {
    fields.deny_unknown_keys(&["code", "message", "retryable", "retry_after_ms", "times"])?;
    let code = parse_non_empty(&fields.require("code")?)?;
    let message = Template::compile(fields.require("message")?.as_str()?, names);
    let retryable = fields.optional("retryable", TomlField::as_bool)?.unwrap_or(false);
    let retry_after_ms = fields.optional("retry_after_ms", |field| field.as_u64(PAUSE_MS_MAX))?;
    let times = fields.optional("times", |field| field.as_u64(ERROR_TIMES_MAX))?;
    let error = ErrorInfo { retryable: Some(retryable), ..ErrorInfo::external(code, "") };
    Ok(ScenarioStep::Fail { failure: ModelFailure { error, retry_after_ms }, message, times })
}

fn parse_usage(field: &TomlField<'_>) -> ParseResult<Usage> {
    let fields = field.as_table()?;
    fields.deny_unknown_keys(&[
        "input_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
    ])?;
    let tokens = |key| fields.get(key).map_or(Ok(0), |field| field.as_u64(TOKENS_MAX));
    Ok(Usage {
        input_tokens: tokens("input_tokens")?,
        cached_tokens: tokens("cached_tokens")?,
        cache_write_tokens: tokens("cache_write_tokens")?,
        output_tokens: tokens("output_tokens")?,
        reasoning_tokens: tokens("reasoning_tokens")?,
    })
}

fn parse_stop_reason(field: &TomlField<'_>) -> ParseResult<StopReason> {
    match field.as_str()? {
        "stop" => Ok(StopReason::Stop),
        "max_tokens" => Ok(StopReason::MaxTokens),
        "content_filter" => Ok(StopReason::ContentFilter),
        value => {
            Err(field.fault(ScenarioFault::UnknownValue { key: "stop", found: value.to_owned(), allowed: STOP_VALUES }))
        }
    }
}
