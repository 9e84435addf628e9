//! The history as messages that the provider takes.
//!
//! It wants roles that take turns, the user first and last; every call answered at the beginning of the message after it;
//! nothing blank; thoughts never last in a message; and for each tool that it ran itself both halves or none. A turn that
//! would end with the model's own words gets [`GO_ON`] behind them: to let the model continue its last sentence is what
//! newer models refuse.

use super::content::{self, blocks, text};
use super::thinking;
use crate::history::{Told, told};
use crate::json;
use crate::parts::summary_note;
use model::history::HistoryEntry;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;

/// What is said for a user who has nothing to say.
const GO_ON: &str = "Go on.";
/// What is said for a user whose words are not there any more.
const BEFORE: &str = "(What was said before this is not shown.)";

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Message {
    /// Whose it is.
    pub(super) role: Role,
    /// Its blocks, at least one.
    pub(super) content: Vec<Value>,
}

/// Whose a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// People's and tools'.
    User,
    /// The model's.
    Assistant,
}

/// The history, for a provider of this origin.
pub(super) fn conversation(history: &[HistoryEntry], origin: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    for told in told(history, origin) {
        let (role, blocks) = said(told);
        add(&mut messages, role, blocks);
    }
    keep_pairs(&mut messages);
    keep_citations(&mut messages);
    for message in messages.iter_mut().filter(|message| message.role == Role::Assistant) {
        let last = message.content.iter().rposition(|block| !thinking::is_thought(block));
        message.content.truncate(last.map_or(0, |last| last + 1));
    }
    alternating(messages)
}

/// What is told, as blocks of one role.
fn said(told: Told<'_>) -> (Role, Vec<Value>) {
    match told {
        // That is said with the instructions.
        Told::System(_) => (Role::User, Vec::new()),
        Told::Summary(summary) => (Role::User, vec![text(&summary_note(summary))]),
        Told::User(parts) => (Role::User, parts.iter().map(|part| content::part(part)).collect()),
        Told::Result(result) => (Role::User, vec![content::result(&result)]),
        Told::Reasoning(raw) => {
            let thoughts = blocks(raw).iter().filter(|block| thinking::is_whole(block));
            (Role::Assistant, thoughts.cloned().collect())
        }
        Told::Assistant { text: words, raw } => {
            let said = raw.map_or(&[][..], blocks).iter().filter(|block| is_said(block));
            let said: Vec<Value> = said.cloned().collect();
            (Role::Assistant, if said.is_empty() { vec![text(words)] } else { said })
        }
        Told::Hosted { raw, .. } => {
            let halves = blocks(raw).iter().filter(|block| hosted_call(block).or(hosted_result(block)).is_some());
            (Role::Assistant, halves.cloned().collect())
        }
        Told::Call(call) => (Role::Assistant, vec![content::call(&call)]),
    }
}

/// Words that are not blank.
fn is_said(block: &Value) -> bool {
    kind(block) == "text" && json::text(block, "text").is_some_and(|words| !words.trim().is_empty())
}

/// Adds blocks to the last message, or begins a new one where the role changes.
fn add(messages: &mut Vec<Message>, role: Role, mut blocks: Vec<Value>) {
    match messages.last_mut() {
        _ if blocks.is_empty() => {}
        Some(last) if last.role == role => last.content.append(&mut blocks),
        _ => messages.push(Message { role, content: blocks }),
    }
}

/// Leaves out what the provider's own tools did where half of it is missing. A call that the newest turn is still busy
/// with gets its result in the next answer.
fn keep_pairs(messages: &mut [Message]) {
    let ids = |half: fn(&Value) -> Option<&str>| -> HashSet<String> {
        messages.iter().flat_map(|message| &message.content).filter_map(half).map(str::to_owned).collect()
    };
    let (calls, results) = (ids(hosted_call), ids(hosted_result));
    let newest = messages.iter().rposition(|message| message.role == Role::Assistant);
    for (place, message) in messages.iter_mut().enumerate() {
        let is_busy = newest == Some(place) && message.content.iter().any(is_call);
        message.content.retain(|block| match (hosted_call(block), hosted_result(block)) {
            (Some(id), _) => is_busy || results.contains(id),
            (_, Some(id)) => calls.contains(id),
            _ => true,
        });
    }
}

fn hosted_call(block: &Value) -> Option<&str> {
    json::text(block, "id").filter(|_| matches!(kind(block), "server_tool_use" | "mcp_tool_use"))
}

fn hosted_result(block: &Value) -> Option<&str> {
    json::text(block, "tool_use_id").filter(|_| kind(block).ends_with("_tool_result"))
}

/// Is it a call that we answer?
pub(super) fn is_call(block: &Value) -> bool {
    kind(block) == "tool_use"
}

/// Is it our answer to a call?
pub(super) fn is_result(block: &Value) -> bool {
    kind(block) == "tool_result"
}

fn kind(block: &Value) -> &str {
    json::text(block, "type").unwrap_or_default()
}

/// Citations go back while what they point at is there. Those that count documents by their place do not: the places may
/// have moved.
fn keep_citations(messages: &mut [Message]) {
    let mut blocks = messages.iter().flat_map(|message| &message.content);
    let has_results = blocks.any(|block| kind(block) == "web_search_tool_result");
    let stays = |citation: &Value| has_results && kind(citation) == "web_search_result_location";
    for block in messages.iter_mut().flat_map(|message| &mut message.content).filter_map(Value::as_object_mut) {
        let Some(Value::Array(citations)) = block.get_mut("citations") else { continue };
        citations.retain(stays);
        if citations.is_empty() {
            block.remove("citations");
        }
    }
}

/// The messages that have something in them, neighbours of one role joined, with a user first and last.
fn alternating(messages: Vec<Message>) -> Vec<Message> {
    let mut joined = Vec::new();
    for Message { role, content } in messages {
        if joined.is_empty() && role == Role::Assistant && !content.is_empty() {
            add(&mut joined, Role::User, vec![text(BEFORE)]);
        }
        add(&mut joined, role, content);
    }
    if joined.last().is_none_or(|last| last.role == Role::Assistant) {
        add(&mut joined, Role::User, vec![text(GO_ON)]);
    }
    joined
}
