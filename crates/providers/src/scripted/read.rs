//! A scenario file's grammar: TOML in, [`Scenario`]s or one precise refusal out.
//!
//! Unknown keys, impossible numbers and scenarios that could never be played are refused, so that a typing mistake is
//! found at the start and not in the middle of a demo. What is left to chance is what a user writes.

use super::error::{Fault, Place, ScenarioError};
use super::fields::{At, Field, Fields};
use super::limits::{IMAGE_URL_BYTES_MAX, MATCH_BYTES_MAX, PAUSE_MS_MAX, REPEAT_MAX, TOKENS_MAX};
use super::script::{Amount, Deltas, Say, Scenario, Step, Turn};
use super::template::{Names, Template};
use model::delta::{ModelFailure, ModelItem};
use model::event::{ErrorInfo, StopReason};
use model::usage::Usage;
use regex::{Regex, RegexBuilder};
use std::sync::Arc;
use toml::de::DeTable;

type Read<T> = Result<T, ScenarioError>;

/// What a step is told by.
const KINDS: &[&str] = &["text", "reasoning", "call", "hosted", "pause_ms", "error"];
const STOPS: &[&str] = &["stop", "max_tokens", "content_filter"];

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
        if list.last().is_some_and(|last| last.pattern.is_none()) {
            return Err(field.refuse(Fault::Shadowed { by: number - 1 }));
        }
        list.push(scenario(&field.fields()?)?);
    }
    Ok(list)
}

fn scenario(fields: &Fields<'_>) -> Read<Scenario> {
    fields.only(&["match", "defaults", "turn"])?;
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
    let mut turns: Vec<Arc<Turn>> = Vec::new();
    for field in fields.need("turn")?.list()? {
        let field = field.placed(Place { turn: turns.len() + 1, ..field.at.place });
        turns.push(Arc::new(turn(&field.fields()?, &names)?));
    }
    if turns.is_empty() {
        return Err(fields.at.refuse(&fields.span, Fault::Empty { key: "turn".to_owned() }));
    }
    Ok(Scenario { pattern, names, turns })
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
    fields.only(&["steps", "usage", "stop"])?;
    let mut steps: Vec<Step> = Vec::new();
    for field in fields.need("steps")?.list()? {
        let field = field.placed(Place { step: steps.len() + 1, ..field.at.place });
        if matches!(steps.last(), Some(Step::Fail { .. })) {
            return Err(field.refuse(Fault::AfterError));
        }
        steps.push(step(&field.fields()?, names)?);
    }
    let fails = matches!(steps.last(), Some(Step::Fail { .. }));
    let calls = steps.iter().any(|step| matches!(step, Step::Say(Say { deltas: Deltas::Arguments(_), .. })));
    let stop = match fields.get("stop") {
        Some(field) if fails => return Err(field.refuse(Fault::StopAndError)),
        Some(field) => stop(&field)?,
        None if calls => StopReason::ToolCalls,
        None => StopReason::Stop,
    };
    let usage = fields.get("usage").map(|field| usage(&field)).transpose()?;
    settle(&mut steps, stop.is_whole() && !fails);
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
            say(fields, names, ModelItem::Message { phase: None }, Deltas::Text(pieces(&field, names)?))
        }
        "reasoning" => {
            fields.only(&["reasoning", "repeat", "every_ms"])?;
            let pieces = pieces(&field, names)?;
            say(fields, names, ModelItem::Reasoning, Deltas::Reasoning { part: 0, pieces })
        }
        "call" => {
            fields.only(&["call", "arguments", "every_ms"])?;
            let arguments = fields.get("arguments").map(|field| pieces(&field, names)).transpose()?;
            let arguments = arguments.unwrap_or_else(|| vec![Template::compile("{}", names)]);
            let item = ModelItem::ToolCall { name: name(&field)?, provider_call_id: None };
            say(fields, names, item, Deltas::Arguments(arguments))
        }
        "hosted" => {
            fields.only(&["hosted", "states", "images", "every_ms"])?;
            let states = fields.get("states").map(|field| strings(&field)).transpose()?.unwrap_or_default();
            let images = fields.get("images").map(|field| images(&field)).transpose()?.unwrap_or_default();
            say(fields, names, ModelItem::HostedCall { name: name(&field)? }, Deltas::Hosted { states, images })
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

fn say(fields: &Fields<'_>, names: &Names, item: ModelItem, deltas: Deltas) -> Read<Step> {
    let repeat = fields.get("repeat").map(|field| field.amount(REPEAT_MAX, names)).transpose()?;
    let every = fields.get("every_ms").map(|field| field.amount(PAUSE_MS_MAX, names)).transpose()?;
    let every = every.unwrap_or(Amount::Fixed(0));
    Ok(Step::Say(Say { slot: 0, opens: Some(item), deltas, repeat, every, closes: false }))
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
    fields.only(&["code", "message", "retryable", "retry_after_ms"])?;
    let code = name(&fields.need("code")?)?;
    let message = Template::compile(fields.need("message")?.text()?, names);
    let retryable = fields.get("retryable").map(|field| field.flag()).transpose()?.unwrap_or(false);
    let retry_after_ms = fields.get("retry_after_ms").map(|field| field.number(PAUSE_MS_MAX)).transpose()?;
    let error = ErrorInfo { retryable: Some(retryable), ..ErrorInfo::new(&code, "") };
    Ok(Step::Fail { failure: ModelFailure { error, retry_after_ms }, message })
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
