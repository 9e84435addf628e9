//! What a run waits for: approvals, and results of tools that the client runs.

use super::note;
use super::terminal::{Terminal, TerminalInput};
use client::{ApiClient, ApiClientError, escape_control};
use model::event::{Event, PendingKind, PendingRequest};
use model::item::Item;
use model::json::{ExactObject, ExactValue};
use model::{CallId, TaskId};
use reqwest::Url;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) enum QuestionEnd {
    Answered,
    Interrupted,
    InputEnded,
}

/// The calls of a run, for questions about them.
#[derive(Default)]
pub(super) struct PendingCalls(BTreeMap<CallId, String>);

impl PendingCalls {
    pub(super) fn remember(&mut self, event: &Event) {
        if let Event::ItemDone(done) = event
            && let Item::ToolCall(call) = &done.item
        {
            let line = format!("{} {}", call.name, call.arguments.as_deref().unwrap_or_default());
            self.0.insert(call.call_id.clone(), escape_control(&line).replace('\n', " "));
        }
    }

    fn describe<'a>(&'a self, call: &'a CallId) -> &'a str {
        self.0.get(call).map_or(call.as_str(), String::as_str)
    }
}

/// Asks until the server has accepted an answer, or somebody else has given one.
pub(super) async fn ask(
    api: &ApiClient,
    terminal: &mut Terminal,
    task: &TaskId,
    pending: &PendingRequest,
    calls: &PendingCalls,
) -> Result<QuestionEnd, ApiClientError> {
    let call = calls.describe(&pending.call_id);
    loop {
        let question = match pending.kind {
            PendingKind::Approval => ask_approval(terminal, call).await,
            PendingKind::ClientTool => ask_result(terminal, call, &pending.call_id).await,
        };
        let body = match question {
            QuestionAnswer::Body(body) => body,
            QuestionAnswer::Invalid(why) => {
                note(&why);
                continue;
            }
            QuestionAnswer::Interrupted => return Ok(QuestionEnd::Interrupted),
            QuestionAnswer::InputEnded => return Ok(QuestionEnd::InputEnded),
        };
        match api.post::<Value>(answer_url(api, task, pending), &body).await {
            Ok(_) => return Ok(QuestionEnd::Answered),
            Err(error @ ApiClientError::Rejected(status, _)) => {
                note(&error.to_string());
                // Edited arguments that do not fit can be corrected; everything else is settled.
                if status != reqwest::StatusCode::UNPROCESSABLE_ENTITY {
                    return Ok(QuestionEnd::Answered);
                }
            }
            Err(error) if error.is_transient() => note(&error.to_string()),
            Err(error) => return Err(error),
        }
    }
}

fn answer_url(api: &ApiClient, task: &TaskId, pending: &PendingRequest) -> Url {
    match &pending.key {
        Some(key) => api.url(&format!("/v1/tasks/{task}/approvals/{key}")),
        None => api.url(&format!("/v1/tasks/{task}/tool_results")),
    }
}

enum QuestionAnswer {
    /// The body of the request.
    Body(ExactValue),
    Invalid(String),
    Interrupted,
    InputEnded,
}

async fn ask_approval(terminal: &mut Terminal, call: &str) -> QuestionAnswer {
    match terminal.ask_question(&format!("approve {call}? [y/n/e] ")).await {
        TerminalInput::Line(line) => match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => QuestionAnswer::Body(json!({"decision": "approve"}).into()),
            "n" | "no" => QuestionAnswer::Body(json!({"decision": "reject"}).into()),
            "e" | "edit" => ask_arguments(terminal).await,
            _ => QuestionAnswer::Invalid("write y to approve, n to reject, e to edit the arguments".to_owned()),
        },
        TerminalInput::Interrupt => QuestionAnswer::Interrupted,
        TerminalInput::End => QuestionAnswer::InputEnded,
    }
}

async fn ask_arguments(terminal: &mut Terminal) -> QuestionAnswer {
    match terminal.ask("arguments (JSON): ").await {
        TerminalInput::Line(line) => match serde_json::from_str::<ExactObject>(&line) {
            Ok(arguments) => {
                let members = [("decision", json!("edit").into()), ("arguments", ExactValue::Object(arguments))];
                let members = members.map(|(name, value)| (name.to_owned(), value));
                QuestionAnswer::Body(ExactValue::Object(members.into()))
            }
            Err(error) => QuestionAnswer::Invalid(format!("not a JSON object: {error}")),
        },
        TerminalInput::Interrupt => QuestionAnswer::Interrupted,
        TerminalInput::End => QuestionAnswer::InputEnded,
    }
}

async fn ask_result(terminal: &mut Terminal, call: &str, id: &CallId) -> QuestionAnswer {
    match terminal.ask_question(&format!("result of {call}: ")).await {
        TerminalInput::Line(line) => QuestionAnswer::Body(json!([{"call_id": id, "content": line}]).into()),
        TerminalInput::Interrupt => QuestionAnswer::Interrupted,
        TerminalInput::End => QuestionAnswer::InputEnded,
    }
}
