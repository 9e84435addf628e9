//! Test vocabulary: a scenario in TOML, user messages, and the events of a turn as short lines.

use futures_util::StreamExt;
use model::content::ContentPart;
use model::definition::ToolSpec;
use model::history::HistoryEntry;
use model::item::ResultStatus;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind, ModelRequest};
use model::ports::ModelClient;
use providers::scripted::{Scenarios, ScriptedProvider};
use std::sync::Arc;

/// The clock that `{clock_us}` reads.
pub(crate) const CLOCK_US: u64 = 1_700_000_000_000_000;

pub(crate) fn scripted(text: &str) -> ScriptedProvider {
    let scenarios = Scenarios::parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}"));
    ScriptedProvider::new(scenarios, Arc::new(|| CLOCK_US))
}

/// One scenario that always matches, with one turn of these steps.
pub(crate) fn steps(steps: &str) -> ScriptedProvider {
    scripted(&format!("[[scenario]]\n[[scenario.turn]]\nsteps = [{steps}]"))
}

pub(crate) fn user(text: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(text)] }
}

pub(crate) fn assistant(text: &str) -> HistoryEntry {
    HistoryEntry::Assistant { id: "msg_R1".into(), text: text.to_owned(), raw: None }
}

pub(crate) fn call(name: &str) -> HistoryEntry {
    HistoryEntry::Call {
        call_id: "call_R1".into(),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
        provider_call_id: None,
        raw: None,
    }
}

/// A tool result with reference group `reference` of the thread.
pub(crate) fn result(reference: Option<u32>) -> HistoryEntry {
    let part = |text: &str| ContentPart::Text { text: text.to_owned(), id: reference, tags: Vec::new() };
    let content = vec![part("<referencable-item>"), part("15C"), part("</referencable-item>")];
    let (call_id, status) = ("call_R1".into(), ResultStatus::Completed);
    HistoryEntry::Result { call_id, status, content, acknowledged_checks: None }
}

/// A tool result with this status and text.
pub(crate) fn ended(status: ResultStatus, text: &str) -> HistoryEntry {
    let (call_id, content) = ("call_R1".into(), vec![ContentPart::text(text)]);
    HistoryEntry::Result { call_id, status, content, acknowledged_checks: None }
}

/// A request to this model with these tools.
pub(crate) fn asked(model: &str, history: impl Into<Vec<HistoryEntry>>, tools: &[&str]) -> ModelRequest {
    let spec = |name: &&str| ToolSpec {
        name: (*name).to_owned(),
        description: String::new(),
        parameters: serde_json::Value::Null,
    };
    ModelRequest { model: model.to_owned(), tools: tools.iter().map(spec).collect(), ..request(history) }
}

pub(crate) fn request(history: impl Into<Vec<HistoryEntry>>) -> ModelRequest {
    ModelRequest {
        user: "local".into(),
        thread: "thr_1".into(),
        task: "task_R".into(),
        step: 1,
        attempt: 1,
        model: "scripted/demo".to_owned(),
        instructions: String::new(),
        history: history.into().into(),
        tools: Arc::default(),
        provider_options: Arc::default(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    }
}

pub(crate) async fn events(models: &dyn ModelClient, history: impl Into<Vec<HistoryEntry>>) -> Vec<ModelEvent> {
    models.stream_turn(request(history)).collect().await
}

/// The events of a turn, one line each.
pub(crate) async fn played(models: &dyn ModelClient, history: impl Into<Vec<HistoryEntry>>) -> Vec<String> {
    events(models, history).await.iter().map(line).collect()
}

/// The events of a request, one line each.
pub(crate) async fn lines(models: &dyn ModelClient, request: ModelRequest) -> Vec<String> {
    models.stream_turn(request).map(|event| line(&event)).collect().await
}

/// The answer to this message, as one text.
pub(crate) async fn answer(models: &dyn ModelClient, message: &str) -> String {
    let events = events(models, [user(message)]).await;
    let texts = events.iter().filter_map(|event| match event {
        ModelEvent::Delta(ModelDelta::Text { text, .. }) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn line(event: &ModelEvent) -> String {
    let delta = match event {
        ModelEvent::Delta(delta) => delta,
        ModelEvent::End(end) => {
            let stop = format!("{:?}", end.stop_reason);
            return format!("end {stop} {}/{}", end.usage.input_tokens, end.usage.output_tokens);
        }
        ModelEvent::Failed(failure) => {
            let error = &failure.error;
            let retry = if error.retryable == Some(true) { "retryable" } else { "for good" };
            return format!("failed {} {retry}: {}", error.code, error.message);
        }
    };
    match delta {
        ModelDelta::Started { slot, item } => format!("{slot}+ {}", item_name(item)),
        ModelDelta::Reasoning { slot, part, text } => format!("{slot}.{part} {text}"),
        ModelDelta::Text { slot, part: 0, text, logprobs: None } => format!("{slot} {text}"),
        ModelDelta::Arguments { slot, text } => format!("{slot} {text}"),
        ModelDelta::Image { slot, part: 0, partial, url } => match partial {
            Some(partial) => format!("{slot} partial {partial} {url}"),
            None => format!("{slot} image {url}"),
        },
        ModelDelta::Hosted { slot, state, action: None } => format!("{slot} {state}"),
        ModelDelta::Done { slot, raw: None } => format!("{slot}-"),
        ModelDelta::Done { slot, raw: Some(raw) } => {
            format!("{slot}- {}", raw.item["type"].as_str().unwrap_or_default())
        }
        ModelDelta::Usage(usage) => format!("usage {}/{}", usage.input_tokens, usage.output_tokens),
        other => panic!("a scenario cannot give {other:?}"),
    }
}

fn item_name(item: &ModelItemKind) -> String {
    match item {
        ModelItemKind::Reasoning => "reasoning".to_owned(),
        ModelItemKind::Message { phase: None } => "message".to_owned(),
        ModelItemKind::ToolCall { name, provider_call_id: None } => format!("call {name}"),
        ModelItemKind::ComputerCall { provider_call_id: None } => "computer".to_owned(),
        ModelItemKind::HostedApproval { name, server_label, provider_call_id: None } => {
            format!("approval {server_label}/{name}")
        }
        ModelItemKind::HostedCall { name, .. } => format!("hosted {name}"),
        other => panic!("a scenario cannot begin {other:?}"),
    }
}
