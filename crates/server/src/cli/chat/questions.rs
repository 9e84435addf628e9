//! What a run waits for: approvals, answers, and results of tools that the client runs.

use super::note;
use super::terminal::{Terminal, TerminalInput};
use client::{ApiClient, ApiClientError, escape_control};
use model::event::{Event, PendingKind, PendingRequest, Question};
use model::item::Item;
use model::json::{ExactObject, ExactValue};
use model::{ApprovalKey, CallId, TaskId};
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
pub(super) struct PendingCalls(BTreeMap<CallId, String>, BTreeMap<ApprovalKey, Question>);

impl PendingCalls {
    pub(super) fn remember(&mut self, event: &Event) {
        if let Event::ItemDone(done) = event
            && let Item::ToolCall(call) = &done.item
        {
            let line = format!("{} {}", call.name, call.arguments.as_deref().unwrap_or_default());
            self.0.insert(call.call_id.clone(), escape_control(&line).replace('\n', " "));
        }
        if let Event::ApprovalRequested(request) = event
            && let Some(question) = &request.question
        {
            self.1.insert(request.key.clone(), question.clone());
        }
    }

    fn question(&self, pending: &PendingRequest) -> Question {
        pending.key.as_ref().and_then(|key| self.1.get(key)).cloned().unwrap_or_default()
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
            PendingKind::Question => ask_answer(terminal, calls.question(pending)).await,
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

/// A question for one text is answered with that text, any other with JSON. An empty line declines it.
async fn ask_answer(terminal: &mut Terminal, question: Question) -> QuestionAnswer {
    let schema = question.schema.as_ref();
    let field = schema.and_then(only_text_field);
    let expected = match (&field, schema.and_then(only_text_choices)) {
        (Some(_), None) => "write a text".to_owned(),
        (Some(_), Some(choices)) => format!("write one of {choices}"),
        (None, _) => format!("write JSON that fits {}", schema.map(ToString::to_string).unwrap_or_default()),
    };
    note(&format!("{}; an empty line declines", escape_control(&expected).replace('\n', " ")));
    let message = escape_control(&question.message).replace('\n', " ");
    let arguments = match (terminal.ask_question(&format!("{message} ")).await, field) {
        (TerminalInput::Line(line), _) if line.trim().is_empty() => {
            return QuestionAnswer::Body(json!({"decision": "reject"}).into());
        }
        (TerminalInput::Line(line), Some(field)) => ExactValue::Object([(field, json!(line).into())].into()),
        (TerminalInput::Line(line), None) => match serde_json::from_str::<ExactObject>(&line) {
            Ok(arguments) => ExactValue::Object(arguments),
            Err(error) => return QuestionAnswer::Invalid(format!("not a JSON object: {error}")),
        },
        (TerminalInput::Interrupt, _) => return QuestionAnswer::Interrupted,
        (TerminalInput::End, _) => return QuestionAnswer::InputEnded,
    };
    let members = [("decision", json!("approve").into()), ("arguments", arguments)];
    QuestionAnswer::Body(ExactValue::Object(members.map(|(name, value)| (name.to_owned(), value)).into()))
}

/// The only property of a schema, if it is a text.
fn only_text_field(schema: &Value) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    let (name, property) = properties.iter().next().filter(|_| properties.len() == 1)?;
    (property.get("type")? == "string").then(|| name.clone())
}

/// What the only property of a schema may be.
fn only_text_choices(schema: &Value) -> Option<String> {
    let property = schema.get("properties")?.as_object()?.values().next()?;
    let choices = property.get("enum")?.as_array()?.iter().filter_map(Value::as_str);
    Some(choices.collect::<Vec<_>>().join(", "))
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
