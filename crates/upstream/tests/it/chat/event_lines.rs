//! Decodes answers and formats their events as short lines.

use crate::dialect::{hear, lines, tokens};
use model::content::Annotation;
use model::history::HistoryEntry;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind, ModelRequest};
use model::{TaskId, ThreadId, UserId};
use std::sync::Arc;
use upstream::chat;

pub(crate) fn turn(history: Vec<HistoryEntry>) -> ModelRequest {
    ModelRequest {
        user: UserId::from("user"),
        thread: ThreadId::from("thr_1"),
        task: TaskId::from("task_1"),
        step: 1,
        attempt: 1,
        model: "openai-chat/m".to_owned(),
        instructions: String::new(),
        history: history.into(),
        tools: Arc::new([]),
        provider_options: Arc::default(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    }
}

pub(crate) fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<ModelEvent> {
    hear(chat::new_ingest("here".to_owned(), &turn(Vec::new())), chunks)
}

/// One line per event; the deltas of one text are one line.
pub(crate) fn tell(events: &[ModelEvent]) -> String {
    let told = lines(events, line).into_iter();
    let told = told.map(|(what, text)| format!("{what} {text}").trim_end().to_owned());
    told.collect::<Vec<_>>().join("\n")
}

fn line(event: &ModelEvent) -> (String, String) {
    match event {
        ModelEvent::Delta(delta) => delta_line(delta),
        ModelEvent::End(end) => {
            let said = [end.model.clone(), end.service_tier.clone()].map(Option::unwrap_or_default).join(" ");
            (format!("end {:?} {} {said}", end.stop_reason, tokens(end.usage)).trim_end().to_owned(), String::new())
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
        ModelDelta::Text { slot, part, text, logprobs: None } => (format!("{slot}.{part} says"), text.clone()),
        ModelDelta::Text { slot, part, text, logprobs: Some(logprobs) } => {
            plain(format!("{slot}.{part} says {text} {}", logprobs[0]["logprob"]))
        }
        ModelDelta::Refusal { slot, part, text } => (format!("{slot}.{part} declines"), text.clone()),
        ModelDelta::Annotation { slot, part, annotation } => match annotation {
            Annotation::UrlCitation { url, title, start_index, end_index } => {
                plain(format!("{slot}.{part} cites {url} {title:?} {start_index}..{end_index}"))
            }
            other => plain(format!("{slot}.{part} {other:?}")),
        },
        ModelDelta::Arguments { slot, text } => (format!("{slot} with"), text.clone()),
        ModelDelta::Image { slot, part, url, .. } => plain(format!("{slot}.{part} shows {url}")),
        ModelDelta::Hosted { slot, state, .. } => plain(format!("{slot} {state}")),
        ModelDelta::Done { slot, raw } => {
            let raw = raw.as_ref().map(|raw| format!(" {} {}", raw.origin, raw.item)).unwrap_or_default();
            plain(format!("{slot} done{raw}"))
        }
        ModelDelta::Usage(usage) => plain(format!("usage {}", tokens(*usage))),
        ModelDelta::Unknown(value) => plain(format!("unknown {value}")),
    }
}
