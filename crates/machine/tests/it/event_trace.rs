//! Formats records as the reference sequences do.

use crate::fixtures::run_id;
use model::event::Event;
use model::item::{Item, ToolResult};
use model::record::RecordDraft;
use serde::Serialize;
use serde_json::Value;

/// One line per record, with its text.
pub(crate) fn trace_lines(drafts: &[RecordDraft]) -> Vec<String> {
    drafts.iter().map(|draft| trace_line(&draft.event)).collect()
}

/// One word per record. Deltas are left out, so that an item is one word: its end. A result that is complete at once is
/// one word, too; one that stays open has `fco_R1+` where it starts, and so have files.
pub(crate) fn trace_words(drafts: &[RecordDraft]) -> Vec<String> {
    drafts.iter().enumerate().filter_map(|(place, draft)| trace_word(&draft.event, &drafts[place + 1..])).collect()
}

fn short_id(id: impl std::fmt::Display) -> String {
    id.to_string().replace(run_id().run_suffix(), "R")
}

fn wire_name(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn kind(event: &Event) -> String {
    let value: Value = serde_json::to_value(event).unwrap_or_default();
    value["type"].as_str().unwrap_or_default().trim_start_matches("task.").to_owned()
}

fn trace_word(event: &Event, next: &[RecordDraft]) -> Option<String> {
    let word = match event {
        Event::ItemAdded(e) => match &e.item {
            Item::FileProcessing(files) => format!("{}+", short_id(&files.id)),
            Item::ToolResult(result) if !ends_at_once(result, next) => format!("{}+", short_id(&result.id)),
            _ => return None,
        },
        Event::TextAdded(_)
        | Event::TextDelta(_)
        | Event::TextDone(_)
        | Event::AnnotationAdded(_)
        | Event::ImageAdded(_)
        | Event::ImageDelta(_)
        | Event::ImageDone(_)
        | Event::ArgumentsDelta(_)
        | Event::ArgumentsDone(_)
        | Event::SummaryAdded(_)
        | Event::SummaryDelta(_)
        | Event::SummaryDone(_) => return None,
        Event::ItemDone(e) => item(&e.item),
        event => kind(event) + &details(event).map(|details| format!("{{{}}}", details.join(","))).unwrap_or_default(),
    };
    let task = event.task_id().filter(|task| **task != run_id());
    Some(task.map(|task| format!("{}/", short_id(task))).unwrap_or_default() + &word)
}

fn ends_at_once(result: &ToolResult, next: &[RecordDraft]) -> bool {
    let done = next.iter().find(|draft| {
        !matches!(draft.event, Event::TextAdded(_) | Event::TextDelta(_) | Event::TextDone(_))
            && !matches!(draft.event, Event::ImageAdded(_) | Event::ImageDone(_))
    });
    done.is_some_and(|done| matches!(&done.event, Event::ItemDone(e) if *e.item.id() == result.id))
}

fn item(item: &Item) -> String {
    let value: Value = serde_json::to_value(item).unwrap_or_default();
    let said = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let status = said("/status").filter(|status| matches!(item, Item::ToolResult(_)) || status != "completed");
    let how: Vec<String> = [status, said("/reason"), said("/error/code")].into_iter().flatten().collect();
    let how = if how.is_empty() { String::new() } else { format!("{{{}}}", how.join(",")) };
    short_id(item.id()) + &how
}

fn details(event: &Event) -> Option<Vec<String>> {
    let attempt = |attempt: u32| (attempt != 1).then(|| attempt.to_string());
    Some(match event {
        Event::StepStarted(e) => [Some(e.step.to_string()), attempt(e.attempt)].into_iter().flatten().collect(),
        Event::Retrying(e) => vec![e.step.to_string(), e.attempt.to_string(), e.error.code.clone()],
        Event::StepDone(e) => vec![e.step.to_string(), wire_name(e.stop_reason)],
        Event::ToolStarted(e) => [Some(short_id(&e.call_id)), attempt(e.attempt)].into_iter().flatten().collect(),
        Event::ToolProgress(e) => vec![short_id(&e.call_id)],
        Event::ApprovalRequested(e) => vec![short_id(&e.key)],
        Event::ApprovalResolved(e) => {
            let kinds = e.decisions.iter().map(|decision| wire_name(decision.kind));
            [short_id(&e.key)].into_iter().chain(kinds).chain([wire_name(e.by)]).collect()
        }
        Event::Paused(e) => {
            let pending = e.pending.iter().map(|pending| match &pending.key {
                Some(key) => short_id(key),
                None => short_id(&pending.call_id),
            });
            pending.collect()
        }
        Event::Resumed(e) => vec![wire_name(e.by)],
        Event::AgentUpdated(e) => vec![e.agent.clone(), e.from.clone()],
        Event::Cancelling(e) => vec![wire_name(e.mode)],
        Event::Cancelled(e) => vec![wire_name(e.mode), wire_name(e.by)],
        Event::Recovered(e) => {
            [e.step.to_string(), e.attempt.to_string()].into_iter().chain(e.cut.iter().map(short_id)).collect()
        }
        Event::FileProcessingUpdated(e) => vec![e.url.clone(), wire_name(e.status)],
        Event::Incomplete(e) => vec![wire_name(e.reason)],
        Event::Failed(e) => vec![e.error.code.clone()],
        _ => return None,
    })
}

fn trace_line(event: &Event) -> String {
    match event {
        Event::ItemAdded(e) => format!("item+ {}", short_id(e.item.id())),
        Event::ItemDone(e) => format!("item- {}", item(&e.item)),
        Event::TextDelta(e) => format!("text.delta {:?}", e.delta),
        Event::TextDone(e) => format!("text.done {:?}", e.item.block().text()),
        Event::AnnotationAdded(e) => format!("annotation {}", serde_json::to_string(&e.annotation).unwrap_or_default()),
        event => trace_word(event, &[]).unwrap_or_else(|| kind(event)),
    }
}
