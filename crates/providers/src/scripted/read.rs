//! A scenario file's grammar: TOML in, [`Scenario`]s or one precise refusal out.
//!
//! Unknown keys, impossible numbers and scenarios that could never be played are refused, so that a typing mistake is
//! found at the start and not in the middle of a demo. What is left to chance is what a user writes.

use super::error::{Fault, Place, ScenarioError};
use super::fields::{At, Field, Fields};
use super::limits::{IMAGE_URL_BYTES_MAX, MATCH_BYTES_MAX, PAUSE_MS_MAX, REPEAT_MAX, TIMES_MAX, TOKENS_MAX};
use super::script::{Amount, Deltas, Fork, Opening, Say, Scenario, Step, Turn, When};
use super::template::{Names, Template};
use model::event::{ErrorInfo, StopReason};
use model::item::ResultStatus;
use model::model_turn::ModelFailure;
use model::usage::Usage;
use regex::{Regex, RegexBuilder};
use std::sync::Arc;
use toml::de::DeTable;

type Read<T> = Result<T, ScenarioError>;

/// What a step is told by.
const KINDS: &[&str] = &["text", "reasoning", "call", "hosted", "pause_ms", "error"];
const STOPS: &[&str] = &["stop", "max_tokens", "content_filter"];
const WHEN: &[&str] = &["status", "tool"];
const STATUSES: &[&str] = &["completed", "failed", "rejected", "incomplete", "unknown"];

pub(super) fn scenarios(text: &str, origin: &str) -> Read<Vec<Scenario>> {
    let at = At { origin, text, place: Place::default() };
    let file = DeTable::parse(text).map_err(|error| ScenarioError::Syntax {
        origin: origin.to_owned(),
        line: at.line(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    let file = Fields::new(at, 0..0, file.get_ref());
    file.only(&["scenario"])?;
    let mut list: Vec<Scenario> = Vec::new();
    for field in file.need("scenario")?.list()? {
        let number = list.len() + 1;
        let field = field.placed(Place { scenario: number, ..Place::default() });
        let models = models(&field.fields()?)?;
        if let Some(by) = shadow(&list, &models) {
            return Err(field.refuse(Fault::Shadowed { by }));
        }
        list.push(scenario(&field.fields()?, models)?);
    }
    Ok(list)
}

/// Who plays a scenario.
fn models(fields: &Fields<'_>) -> Read<Vec<String>> {
    let Some(field) = fields.get("model") else { return Ok(Vec::new()) };
    let models = strings(&field)?;
    match models.iter().any(String::is_empty) {
        true => Err(field.refuse(Fault::Empty { key: "model".to_owned() })),
        false => Ok(models),
    }
}

/// Which scenario is played whenever one of these models could play the next; the last one, when it takes several.
fn shadow(before: &[Scenario], models: &[String]) -> Option<usize> {
    let catch_alls = || (1..).zip(before).filter(|(_, scenario)| scenario.pattern.is_none());
    if models.is_empty() {
        return catch_alls().find(|(_, scenario)| scenario.models.is_empty()).map(|(number, _)| number);
    }
    let mut last = None;
    for model in models {
        let (number, _) = catch_alls().find(|(_, scenario)| scenario.is_for(model))?;
        last = last.max(Some(number));
    }
    last
}

fn scenario(fields: &Fields<'_>, models: Vec<String>) -> Read<Scenario> {
    fields.only(&["model", "match", "defaults", "turn"])?;
    let pattern = fields.get("match").map(|field| pattern(&field)).transpose()?;
    let captures = pattern.iter().flat_map(|pattern| pattern.capture_names().flatten()).map(str::to_owned);
    let mut names = Names::new(captures);
    if let Some(defaults) = fields.get("defaults") {
        let defaults = defaults.fields()?;
        for field in defaults.keys().filter_map(|key| defaults.get(key)) {
            let unknown = || Fault::UnknownName { key: "defaults".to_owned(), name: field.key.to_owned() };
            let value = names.find(field.key).ok_or_else(|| field.refuse(unknown()))?;
            names.set_default(value, field.text_or_number()?);
        }
    }
    let turns = turns(&fields.need("turn")?, &names)?;
    if turns.is_empty() {
        return Err(fields.at.refuse(&fields.span, Fault::Empty { key: "turn".to_owned() }));
    }
    Ok(Scenario { models, pattern, names, turns })
}

/// Turns with `when` and the next one without are one place in the play.
fn turns(list: &Field<'_>, names: &Names) -> Read<Vec<Fork>> {
    let mut forks: Vec<Fork> = Vec::new();
    let mut guarded: Vec<(When, Arc<Turn>)> = Vec::new();
    let mut last = None;
    for (number, field) in (1..).zip(list.list()?) {
        let field = field.placed(Place { turn: number, ..field.at.place });
        let fields = field.fields()?;
        let turn = Arc::new(turn(&fields, names)?);
        match fields.get("when") {
            Some(field) => guarded.push((when(&field)?, turn)),
            None => forks.push(Fork { guarded: std::mem::take(&mut guarded), otherwise: turn }),
        }
        last = Some(field);
    }
    match last.filter(|_| !guarded.is_empty()) {
        Some(last) => Err(last.refuse(Fault::NoOtherwise)),
        None => Ok(forks),
    }
}

fn when(field: &Field<'_>) -> Read<When> {
    let fields = field.fields()?;
    fields.only(WHEN)?;
    let when = When {
        statuses: fields.get("status").map(|field| statuses(&field)).transpose()?.unwrap_or_default(),
        tool: fields.get("tool").map(|field| field.flag()).transpose()?,
    };
    match when.statuses.is_empty() && when.tool.is_none() {
        true => Err(field.refuse(Fault::EmptyWhen { allowed: WHEN })),
        false => Ok(when),
    }
}

fn statuses(field: &Field<'_>) -> Read<Vec<ResultStatus>> {
    let unknown = |word: &str| Fault::UnknownWord { key: "status", found: word.to_owned(), allowed: STATUSES };
    let status = |word: &String| match word.as_str() {
        "completed" => Ok(ResultStatus::Completed),
        "failed" => Ok(ResultStatus::Failed),
        "rejected" => Ok(ResultStatus::Rejected),
        "incomplete" => Ok(ResultStatus::Incomplete),
        "unknown" => Ok(ResultStatus::Unknown),
        word => Err(field.refuse(unknown(word))),
    };
    strings(field)?.iter().map(status).collect()
}

fn pattern(field: &Field<'_>) -> Read<Regex> {
    let built = RegexBuilder::new(field.text()?).case_insensitive(true).size_limit(MATCH_BYTES_MAX).build();
    let pattern = built.map_err(|error| field.refuse(Fault::BadMatch { message: error.to_string() }))?;
    match pattern.capture_names().flatten().find(|name| Names::is_taken(name)) {
        Some(name) => Err(field.refuse(Fault::TakenName { name: name.to_owned() })),
        None => Ok(pattern),
    }
}

fn turn(fields: &Fields<'_>, names: &Names) -> Read<Turn> {
    fields.only(&["when", "steps", "usage", "stop"])?;
    let mut steps: Vec<Step> = Vec::new();
    for field in fields.need("steps")?.list()? {
        let field = field.placed(Place { step: steps.len() + 1, ..field.at.place });
        if steps.last().is_some_and(Step::is_the_end) {
            return Err(field.refuse(Fault::AfterError));
        }
        steps.push(step(&field.fields()?, names)?);
    }
    let fails = steps.last().is_some_and(Step::is_the_end);
    let calls = steps.iter().any(|step| matches!(step, Step::Say(Say { deltas: Deltas::Arguments(_), .. })));
    let stop = match fields.get("stop") {
        Some(field) if fails => return Err(field.refuse(Fault::StopAndError)),
        Some(field) => stop(&field)?,
        None if calls => StopReason::ToolCalls,
        None => StopReason::Stop,
    };
    let usage = fields.get("usage").map(|field| usage(&field)).transpose()?;
    settle(&mut steps, stop.is_complete() && !fails);
    Ok(Turn { steps, usage, stop })
}

/// Which step opens and which closes an item. The last item stays open when the turn fails or is limited: it was cut.
fn settle(steps: &mut [Step], whole: bool) {
    let mut last: Option<&mut Say> = None;
    for step in steps {
        let Step::Say(say) = step else { continue };
        if let Some(before) = last.take() {
            before.closes = !go_on(say, before);
        }
        last = Some(say);
    }
    if let Some(last) = last {
        last.closes = whole;
    }
}

/// Words go on with the message before them, thoughts are the next part of the thoughts before them, whatever the pause
/// in between. Everything else is an item of its own.
fn go_on(say: &mut Say, before: &Say) -> bool {
    let goes_on = match (&mut say.deltas, &before.deltas) {
        (Deltas::Text(_), Deltas::Text(_)) => true,
        (Deltas::Reasoning { part, .. }, Deltas::Reasoning { part: before, .. }) => {
            *part = before + 1;
            true
        }
        _ => false,
    };
    say.slot = before.slot + u32::from(!goes_on);
    if goes_on {
        say.opens = None;
    }
    goes_on
}

fn step(fields: &Fields<'_>, names: &Names) -> Read<Step> {
    let mut kinds = KINDS.iter().filter_map(|kind| fields.get(kind));
    let (Some(field), None) = (kinds.next(), kinds.next()) else {
        let found = fields.keys().map(str::to_owned).collect();
        return Err(fields.at.refuse(&fields.span, Fault::NotOneKind { allowed: KINDS, found }));
    };
    match field.key {
        "text" => {
            fields.only(&["text", "repeat", "every_ms"])?;
            say(fields, names, Opening::Message, Deltas::Text(pieces(&field, names)?))
        }
        "reasoning" => {
            fields.only(&["reasoning", "repeat", "every_ms"])?;
            let pieces = pieces(&field, names)?;
            say(fields, names, Opening::Reasoning, Deltas::Reasoning { part: 0, pieces })
        }
        "call" => {
            fields.only(&["call", "arguments", "every_ms"])?;
            let arguments = fields.get("arguments").map(|field| pieces(&field, names)).transpose()?;
            let arguments = arguments.unwrap_or_else(|| vec![Template::compile("{}", names)]);
            let name = Template::compile(&name(&field)?, names);
            say(fields, names, Opening::Call(name), Deltas::Arguments(arguments))
        }
        "hosted" => {
            fields.only(&["hosted", "states", "images", "every_ms"])?;
            let states = fields.get("states").map(|field| strings(&field)).transpose()?.unwrap_or_default();
            let images = fields.get("images").map(|field| images(&field)).transpose()?.unwrap_or_default();
            say(fields, names, Opening::Hosted(name(&field)?), Deltas::Hosted { states, images })
        }
        "pause_ms" => {
            fields.only(&["pause_ms"])?;
            Ok(Step::Pause(field.amount(PAUSE_MS_MAX, names)?))
        }
        _ => {
            fields.only(&["error"])?;
            failure(&field.fields()?, names)
        }
    }
}

fn say(fields: &Fields<'_>, names: &Names, opening: Opening, deltas: Deltas) -> Read<Step> {
    let repeat = fields.get("repeat").map(|field| field.amount(REPEAT_MAX, names)).transpose()?;
    let every = fields.get("every_ms").map(|field| field.amount(PAUSE_MS_MAX, names)).transpose()?;
    let every = every.unwrap_or(Amount::Fixed(0));
    Ok(Step::Say(Say { slot: 0, opens: Some(opening), deltas, repeat, every, closes: false }))
}

fn pieces(field: &Field<'_>, names: &Names) -> Read<Vec<Template>> {
    Ok(strings(field)?.iter().map(|text| Template::compile(text, names)).collect())
}

/// One text or several, never none.
fn strings(field: &Field<'_>) -> Read<Vec<String>> {
    let texts = field.texts()?;
    if texts.is_empty() {
        return Err(field.refuse(Fault::Empty { key: field.key.to_owned() }));
    }
    texts.iter().map(|field| field.text().map(str::to_owned)).collect()
}

fn images(field: &Field<'_>) -> Read<Vec<String>> {
    for url in field.texts()? {
        if url.text()?.len() > IMAGE_URL_BYTES_MAX {
            let max = u64::try_from(IMAGE_URL_BYTES_MAX).unwrap_or(u64::MAX);
            return Err(url.refuse(Fault::TooMuch { key: "images".to_owned(), max }));
        }
    }
    strings(field)
}

/// A tool's name.
fn name(field: &Field<'_>) -> Read<String> {
    match field.text()? {
        "" => Err(field.refuse(Fault::Empty { key: field.key.to_owned() })),
        name => Ok(name.to_owned()),
    }
}

fn failure(fields: &Fields<'_>, names: &Names) -> Read<Step> {
    fields.only(&["code", "message", "retryable", "retry_after_ms", "times"])?;
    let code = name(&fields.need("code")?)?;
    let message = Template::compile(fields.need("message")?.text()?, names);
    let retryable = fields.get("retryable").map(|field| field.flag()).transpose()?.unwrap_or(false);
    let retry_after_ms = fields.get("retry_after_ms").map(|field| field.number(PAUSE_MS_MAX)).transpose()?;
    let times = fields.get("times").map(|field| field.number(TIMES_MAX)).transpose()?;
    let error = ErrorInfo { retryable: Some(retryable), ..ErrorInfo::new(&code, "") };
    Ok(Step::Fail { failure: ModelFailure { error, retry_after_ms }, message, times })
}

fn usage(field: &Field<'_>) -> Read<Usage> {
    let fields = field.fields()?;
    fields.only(&["input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"])?;
    let tokens = |key| fields.get(key).map_or(Ok(0), |field| field.number(TOKENS_MAX));
    Ok(Usage {
        input_tokens: tokens("input_tokens")?,
        cached_tokens: tokens("cached_tokens")?,
        cache_write_tokens: tokens("cache_write_tokens")?,
        output_tokens: tokens("output_tokens")?,
        reasoning_tokens: tokens("reasoning_tokens")?,
    })
}

fn stop(field: &Field<'_>) -> Read<StopReason> {
    match field.text()? {
        "stop" => Ok(StopReason::Stop),
        "max_tokens" => Ok(StopReason::MaxTokens),
        "content_filter" => Ok(StopReason::ContentFilter),
        word => Err(field.refuse(Fault::UnknownWord { key: "stop", found: word.to_owned(), allowed: STOPS })),
    }
}
