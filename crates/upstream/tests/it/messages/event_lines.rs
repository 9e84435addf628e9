//! Decodes answers and formats their events as short lines.

use crate::dialect::{fixtures, hear, lines, tokens};
use model::content::Annotation;
use model::history::HistoryEntry;
use model::json::JsonObject;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind, ModelRequest};
use model::{TaskId, ThreadId, UserId};
use std::sync::Arc;
use upstream::messages;

pub(crate) fn turn(history: Vec<HistoryEntry>, options: JsonObject) -> ModelRequest {
    ModelRequest {
        user: UserId::from("user"),
        thread: ThreadId::from("thr_1"),
        task: TaskId::from("task_1"),
        step: 1,
        attempt: 1,
        model: "anthropic/m".to_owned(),
        instructions: "Be brief.".to_owned(),
        history: history.into(),
        tools: Arc::new([]),
        provider_options: Arc::new(options),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    }
}

pub(crate) fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<ModelEvent> {
    hear(messages::new_ingest("here".to_owned(), &turn(Vec::new(), JsonObject::new())), chunks)
}

/// The lines of the stream of this name.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let named = fixtures("messages").into_iter().find(|(found, _)| found == name);
    named.unwrap_or_else(|| panic!("no stream is called {name}")).1
}

/// One line per event; the deltas of one text are one line.
pub(crate) fn tell(events: &[ModelEvent]) -> String {
    let told = lines(events, line).into_iter();
    let told = told.map(|(what, text)| if text.is_empty() { what } else { format!("{what} {text:?}") });
    told.collect::<Vec<_>>().join("\n")
}

fn line(event: &ModelEvent) -> (String, String) {
    match event {
        ModelEvent::Delta(delta) => delta_line(delta),
        ModelEvent::End(end) => {
            let said = [end.model.as_deref(), end.service_tier.as_deref()].map(|said| said.unwrap_or("-")).join(" ");
            (format!("end {:?} {} {said}", end.stop_reason, tokens(end.usage)), String::new())
        }
        ModelEvent::Failed(failure) => {
            let error = &failure.error;
            (format!("failed {} {:?} {}", error.code, error.retryable.unwrap(), error.message), String::new())
        }
    }
}

fn delta_line(delta: &ModelDelta) -> (String, String) {
    let plain = |line: String| (line, String::new());
    match delta {
        ModelDelta::Started { slot, item } => plain(match item {
            ModelItemKind::Reasoning => format!("{slot} reasoning"),
            ModelItemKind::Message { .. } => format!("{slot} message"),
            ModelItemKind::ToolCall { name, provider_call_id } => {
                format!("{slot} call {name} {}", provider_call_id.as_deref().unwrap_or("-"))
            }
            ModelItemKind::ComputerCall { provider_call_id } => {
                format!("{slot} computer {}", provider_call_id.as_deref().unwrap_or("-"))
            }
            ModelItemKind::HostedApproval { name, server_label, provider_call_id } => {
                format!("{slot} approval {server_label}/{name} {}", provider_call_id.as_deref().unwrap_or("-"))
            }
            ModelItemKind::HostedCall { name, .. } => format!("{slot} hosted {name}"),
        }),
        ModelDelta::Reasoning { slot, part, text } => (format!("{slot}.{part} thinks"), text.clone()),
        ModelDelta::Text { slot, part, text, .. } => (format!("{slot}.{part} says"), text.clone()),
        ModelDelta::Refusal { slot, part, text } => (format!("{slot}.{part} declines"), text.clone()),
        ModelDelta::Annotation { slot, part, annotation } => plain(match annotation {
            Annotation::UrlCitation { url, title, start_index, end_index } => {
                let title = title.as_deref().unwrap_or("-");
                format!("{slot}.{part} cites {url} ({title}) {start_index}..{end_index}")
            }
            Annotation::FileCitation { file_id, filename, quote, start_index, end_index, .. } => {
                let (name, quote) = (filename.as_deref().unwrap_or("-"), quote.as_deref().unwrap_or("-"));
                let range =
                    start_index.zip(*end_index).map_or("-".to_owned(), |(start, end)| format!("{start}..{end}"));
                format!("{slot}.{part} cites {file_id} ({name}) {range} {quote}")
            }
            other => format!("{slot}.{part} {other:?}"),
        }),
        ModelDelta::Arguments { slot, text } => (format!("{slot} with"), text.clone()),
        ModelDelta::Image { slot, part, url, .. } => plain(format!("{slot}.{part} shows {url}")),
        ModelDelta::Hosted { slot, state, action } => {
            plain(format!("{slot} {state} {}", action.as_ref().map(ToString::to_string).unwrap_or_default()))
        }
        ModelDelta::Done { slot, .. } => plain(format!("{slot} done")),
        ModelDelta::Usage(usage) => plain(format!("usage {}", tokens(*usage))),
        ModelDelta::Unknown(value) => plain(format!("unknown {value}")),
    }
}
