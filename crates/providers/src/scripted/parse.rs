//! A scenario file's grammar: TOML in, [`Scenario`]s or one precise refusal out.
//!
//! Unknown keys, impossible numbers and scenarios that could never be played are refused, so that a typing mistake is
//! found at the start and not in the middle of a demo. What is left to chance is what a user writes.

use super::error::{ScenarioError, ScenarioFault, ScenarioPosition};
use super::limits::{
    ERROR_TIMES_MAX, IMAGE_URL_BYTES_MAX, MATCH_REGEX_BYTES_MAX, PAUSE_MS_MAX, REPEAT_MAX, TOKENS_MAX,
};
use super::scenario::{
    EmitStep, ItemStart, NumberOrPlaceholder, Scenario, ScenarioStep, ScenarioTurn, StepDeltas, TurnChoice,
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
use std::sync::Arc;
use toml::de::DeTable;

type ParseResult<T> = Result<T, ScenarioError>;

/// What a step is told by.
const STEP_KEYS: &[&str] = &["text", "reasoning", "call", "hosted", "pause_ms", "error"];
const STOP_VALUES: &[&str] = &["stop", "max_tokens", "content_filter"];
const CONDITION_KEYS: &[&str] = &["status", "tool"];
const STATUS_VALUES: &[&str] = &["completed", "failed", "rejected", "incomplete", "unknown"];

pub(super) fn parse_scenarios(text: &str, origin: &str) -> ParseResult<Vec<Scenario>> {
    let at = SourceContext { origin, text, position: ScenarioPosition::default() };
    let file = DeTable::parse(text).map_err(|error| ScenarioError::Syntax {
        origin: origin.to_owned(),
        line: at.line_of_byte(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    let file = TomlTable::new(at, 0..0, file.get_ref());
    file.deny_unknown_keys(&["scenario"])?;
    let mut list: Vec<Scenario> = Vec::new();
    for field in file.require("scenario")?.as_array()? {
        let number = list.len() + 1;
        let field = field.at_position(ScenarioPosition { scenario: number, ..ScenarioPosition::default() });
        let models = parse_models(&field.as_table()?)?;
        if let Some(by) = find_shadowing(&list, &models) {
            return Err(field.fault(ScenarioFault::Shadowed { by }));
        }
        list.push(parse_scenario(&field.as_table()?, models)?);
    }
    Ok(list)
}

/// Who plays a scenario.
fn parse_models(fields: &TomlTable<'_>) -> ParseResult<Vec<String>> {
    let Some(field) = fields.get("model") else { return Ok(Vec::new()) };
    let models = parse_strings(&field)?;
    match models.iter().any(String::is_empty) {
        true => Err(field.fault(ScenarioFault::Empty { key: "model".to_owned() })),
        false => Ok(models),
    }
}

/// Which scenario is played whenever one of these models could play the next; the last one, when it takes several.
fn find_shadowing(before: &[Scenario], models: &[String]) -> Option<usize> {
    let catch_alls = || (1..).zip(before).filter(|(_, scenario)| scenario.pattern.is_none());
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
    fields.deny_unknown_keys(&["model", "match", "defaults", "turn"])?;
    let pattern = fields.get("match").map(|field| parse_pattern(&field)).transpose()?;
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
    Ok(Scenario { models, pattern, placeholders: names, choices: turns })
}

/// Turns with `when` and the next one without are one place in the play.
fn parse_turns(list: &TomlField<'_>, names: &Placeholders) -> ParseResult<Vec<TurnChoice>> {
    let mut forks: Vec<TurnChoice> = Vec::new();
    let mut guarded: Vec<(TurnCondition, Arc<ScenarioTurn>)> = Vec::new();
    let mut last = None;
    for (number, field) in (1..).zip(list.as_array()?) {
        let field = field.at_position(ScenarioPosition { turn: number, ..field.source.position });
        let fields = field.as_table()?;
        let turn = Arc::new(parse_turn(&fields, names)?);
        match fields.get("when") {
            Some(field) => guarded.push((parse_condition(&field)?, turn)),
            None => forks.push(TurnChoice { conditional: std::mem::take(&mut guarded), fallback: turn }),
        }
        last = Some(field);
    }
    match last.filter(|_| !guarded.is_empty()) {
        Some(last) => Err(last.fault(ScenarioFault::MissingFallbackTurn)),
        None => Ok(forks),
    }
}

fn parse_condition(field: &TomlField<'_>) -> ParseResult<TurnCondition> {
    let fields = field.as_table()?;
    fields.deny_unknown_keys(CONDITION_KEYS)?;
    let when = TurnCondition {
        statuses: fields.get("status").map(|field| parse_statuses(&field)).transpose()?.unwrap_or_default(),
        has_tool: fields.get("tool").map(|field| field.as_bool()).transpose()?,
    };
    match when.statuses.is_empty() && when.has_tool.is_none() {
        true => Err(field.fault(ScenarioFault::EmptyCondition { allowed: CONDITION_KEYS })),
        false => Ok(when),
    }
}

fn parse_statuses(field: &TomlField<'_>) -> ParseResult<Vec<ResultStatus>> {
    let unknown =
        |word: &str| ScenarioFault::UnknownValue { key: "status", found: word.to_owned(), allowed: STATUS_VALUES };
    let status = |word: &String| match word.as_str() {
        "completed" => Ok(ResultStatus::Completed),
        "failed" => Ok(ResultStatus::Failed),
        "rejected" => Ok(ResultStatus::Rejected),
        "incomplete" => Ok(ResultStatus::Incomplete),
        "unknown" => Ok(ResultStatus::Unknown),
        word => Err(field.fault(unknown(word))),
    };
    parse_strings(field)?.iter().map(status).collect()
}

fn parse_pattern(field: &TomlField<'_>) -> ParseResult<Regex> {
    let built = RegexBuilder::new(field.as_str()?).case_insensitive(true).size_limit(MATCH_REGEX_BYTES_MAX).build();
    let pattern = built.map_err(|error| field.fault(ScenarioFault::InvalidRegex { message: error.to_string() }))?;
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
    let usage = fields.get("usage").map(|field| parse_usage(&field)).transpose()?;
    assign_items(&mut steps, stop.is_complete() && !fails);
    Ok(ScenarioTurn { steps, usage, stop })
}

/// Which step opens and which closes an item. The last item stays open when the turn fails or is limited: it was cut.
fn assign_items(steps: &mut [ScenarioStep], whole: bool) {
    let mut last: Option<&mut EmitStep> = None;
    for step in steps {
        let ScenarioStep::Emit(say) = step else { continue };
        if let Some(before) = last.take() {
            before.is_last = !continue_item(say, before);
        }
        last = Some(say);
    }
    if let Some(last) = last {
        last.is_last = whole;
    }
}

/// Words go on with the message before them, thoughts are the next part of the thoughts before them, whatever the pause
/// in between. Everything else is an item of its own.
fn continue_item(say: &mut EmitStep, before: &EmitStep) -> bool {
    let goes_on = match (&mut say.deltas, &before.deltas) {
        (StepDeltas::Text(_), StepDeltas::Text(_)) => true,
        (StepDeltas::Reasoning { part, .. }, StepDeltas::Reasoning { part: before, .. }) => {
            *part = before + 1;
            true
        }
        _ => false,
    };
    say.slot = before.slot + u32::from(!goes_on);
    if goes_on {
        say.starts = None;
    }
    goes_on
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
            let arguments = fields.get("arguments").map(|field| parse_pieces(&field, names)).transpose()?;
            let arguments = arguments.unwrap_or_else(|| vec![Template::compile("{}", names)]);
            let name = Template::compile(&parse_tool_name(&field)?, names);
            parse_emit(fields, names, ItemStart::Call(name), StepDeltas::Arguments(arguments))
        }
        "hosted" => {
            fields.deny_unknown_keys(&["hosted", "states", "images", "every_ms"])?;
            let states = fields.get("states").map(|field| parse_strings(&field)).transpose()?.unwrap_or_default();
            let images = fields.get("images").map(|field| parse_images(&field)).transpose()?.unwrap_or_default();
            parse_emit(
                fields,
                names,
                ItemStart::Hosted(parse_tool_name(&field)?),
                StepDeltas::Hosted { states, images },
            )
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
    opening: ItemStart,
    deltas: StepDeltas,
) -> ParseResult<ScenarioStep> {
    let repeat = fields.get("repeat").map(|field| field.as_number_or_placeholder(REPEAT_MAX, names)).transpose()?;
    let every = fields.get("every_ms").map(|field| field.as_number_or_placeholder(PAUSE_MS_MAX, names)).transpose()?;
    let every = every.unwrap_or(NumberOrPlaceholder::Fixed(0));
    Ok(ScenarioStep::Emit(EmitStep {
        slot: 0,
        starts: Some(opening),
        deltas,
        repeat,
        interval_ms: every,
        is_last: false,
    }))
}

fn parse_pieces(field: &TomlField<'_>, names: &Placeholders) -> ParseResult<Vec<Template>> {
    Ok(parse_strings(field)?.iter().map(|text| Template::compile(text, names)).collect())
}

/// One text or several, never none.
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

/// A tool's name.
fn parse_tool_name(field: &TomlField<'_>) -> ParseResult<String> {
    match field.as_str()? {
        "" => Err(field.fault(ScenarioFault::Empty { key: field.key.to_owned() })),
        name => Ok(name.to_owned()),
    }
}

fn parse_failure(fields: &TomlTable<'_>, names: &Placeholders) -> ParseResult<ScenarioStep> {
    fields.deny_unknown_keys(&["code", "message", "retryable", "retry_after_ms", "times"])?;
    let code = parse_tool_name(&fields.require("code")?)?;
    let message = Template::compile(fields.require("message")?.as_str()?, names);
    let retryable = fields.get("retryable").map(|field| field.as_bool()).transpose()?.unwrap_or(false);
    let retry_after_ms = fields.get("retry_after_ms").map(|field| field.as_u64(PAUSE_MS_MAX)).transpose()?;
    let times = fields.get("times").map(|field| field.as_u64(ERROR_TIMES_MAX)).transpose()?;
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
        word => {
            Err(field.fault(ScenarioFault::UnknownValue { key: "stop", found: word.to_owned(), allowed: STOP_VALUES }))
        }
    }
}
