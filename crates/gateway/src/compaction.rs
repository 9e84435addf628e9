//! Replaces a conversation by a summary that a model writes, for clients of the Responses API.
//!
//! The summary is written by runs like any other, so that limits, prices, keys against repetition, and crashes need no rules
//! of their own. Each has an unlisted thread, which is deleted after a day. A run reads at most what fits one record; a longer
//! conversation is summed up part by part, each together with the summary of the parts before it.

use crate::attachments::uploads::Uploads;
use crate::compaction_item::{SealedSummary, open_summaries, seal_summary};
use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::resolve_run::{ConversationRef, ResolvedRun, find_known_prefix};
use crate::responses::{find_previous_response, start_of_response};
use crate::start_run::{check_callable, check_client_instructions, start_run};
use crate::stream_start::{StreamEnd, wait_for_end};
use engine::{NewRun, REQUEST_BYTES_MAX};
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::event::TaskSpec;
use model::history::{HistoryEntry, PriorHistory, SUMMARY_PROMPT};
use model::item::Item;
use model::model_settings::ModelSettings;
use model::ports::IdempotencyKey;
use model::task::{TaskObject, TaskStatus};
use model::usage::Usage;
use model::{ItemId, ThreadId, UserId};
use protocol::client_input::history_entries;
use protocol::responses::{CompactRequest, CompactedConversation};
use serde_json::Value;
use uuid::Uuid;

/// The conversation that one run reads, as JSON. The summary of the parts before it has the same room.
const PART_BYTES_MAX: usize = REQUEST_BYTES_MAX / 3;
/// Parts of one conversation. Each costs a model turn.
const PARTS_MAX: usize = 64;
/// The user's messages in a window. Older ones are in the summary alone.
const WINDOW_BYTES_MAX: usize = REQUEST_BYTES_MAX / 2;
/// A part of a message that is no text counts as this much; its bytes are stored outside the log.
const ATTACHMENT_BYTES: usize = 256;

/// Whether the answer is complete.
pub enum CompactionEnd {
    Complete(Value),
    /// The engine stops. The same request with the same key continues.
    Interrupted,
}

/// Sums up the conversation of a request.
pub async fn compact_conversation(
    gateway: &Gateway,
    user: &UserId,
    request: CompactRequest,
    idempotency: Option<IdempotencyKey>,
) -> Result<CompactionEnd, Rejection> {
    let CompactRequest { model, mut input, previous_response_id, instructions } = request;
    open_summaries(gateway, user, &mut input)?;
    let conversation = match previous_response_id {
        Some(id) => find_previous_response(gateway, user, &id).await?,
        None => ConversationRef::Unspecified,
    };
    let is_named = !matches!(conversation, ConversationRef::Unspecified);
    let (known, conversation) = find_known_prefix(gateway, user, &input, conversation).await?;
    let mut history = match &conversation {
        ConversationRef::AfterRun(run) => gateway.engine.history_until(user, run).await?,
        ConversationRef::Unspecified | ConversationRef::InThread(_) => PriorHistory::default(),
    };
    // The messages that the client sent, or those of the log if it sent none of them.
    let sent = history_entries(&input);
    let logged = if is_named { history.entries.as_slice() } else { &[] };
    let messages = newest_messages(logged.iter().chain(&sent));
    history.entries.extend(history_entries(input.get(known..).unwrap_or_default()));
    let new = NewRun {
        agent: model,
        input: vec![ContentPart::text(SUMMARY_PROMPT)],
        origin: Some(TaskSpec::compaction_origin()),
        model_settings: ModelSettings { instructions, ..ModelSettings::default() },
        idempotency,
        ..NewRun::default()
    };
    check_callable(gateway, user, &new).await?;
    check_client_instructions(gateway, user, &new, None).await?;
    let Some((text, task, usage)) = summarize(gateway, user, &history, &new).await? else {
        return Ok(CompactionEnd::Interrupted);
    };
    let summary = SealedSummary { text, reference_count: history.reference_count };
    let compacted = CompactedConversation {
        run: &task.task_id,
        created_at: task.created_at,
        messages: &messages,
        sealed_summary: &seal_summary(gateway, user, &summary),
        usage,
    };
    Ok(CompactionEnd::Complete(compacted.object()))
}

/// The newest messages of the user that a window has room for, oldest first.
fn newest_messages<'a>(entries: impl DoubleEndedIterator<Item = &'a HistoryEntry>) -> Vec<Vec<ContentPart>> {
    let mut bytes = 0;
    let messages = entries.rev().filter_map(|entry| match entry {
        HistoryEntry::User { content } => Some(content),
        _ => None,
    });
    let mut newest: Vec<_> = messages
        .take_while(|content| {
            let size = |part: &ContentPart| match part {
                ContentPart::Text { text, .. } => text.len(),
                ContentPart::ImageUrl { .. } | ContentPart::File { .. } => ATTACHMENT_BYTES,
            };
            bytes += content.iter().map(size).sum::<usize>();
            bytes <= WINDOW_BYTES_MAX
        })
        .cloned()
        .collect();
    newest.reverse();
    newest
}

/// Sums up a history part by part. Returns the summary, the task that wrote it, and the usage of all parts; `None` if the
/// engine stops.
async fn summarize(
    gateway: &Gateway,
    user: &UserId,
    history: &PriorHistory,
    new: &NewRun,
) -> Result<Option<(String, TaskObject, Usage)>, Rejection> {
    let parts = split_history(&history.entries);
    if parts.len() > PARTS_MAX {
        let detail = format!("the conversation is longer than {} bytes", PARTS_MAX * PART_BYTES_MAX);
        return Err(Rejection::new(ErrorCode::RequestTooLarge, detail));
    }
    let (mut usage, mut summary) = (Usage::default(), None);
    for (index, part) in parts.into_iter().enumerate() {
        let before = summary.take().map(|(text, _)| HistoryEntry::Summary { text });
        let entries = before.into_iter().chain(part).collect();
        let key = |key: &IdempotencyKey| match index {
            0 => key.clone(),
            _ => IdempotencyKey { key: format!("{} part {index}", key.key), ..key.clone() },
        };
        let new = NewRun {
            thread: Some(ThreadId::unlisted(Uuid::now_v7())),
            create_if_missing: true,
            prior_history: Some(PriorHistory { entries, reference_count: history.reference_count }),
            idempotency: new.idempotency.as_ref().map(key),
            ..new.clone()
        };
        let Some(task) = run_to_end(gateway, user, new).await? else { return Ok(None) };
        usage.add(task.usage);
        summary = Some((summary_text(&task)?, task));
    }
    let (text, task) = summary.ok_or_else(|| Rejection::new(ErrorCode::NoInput, "there is nothing to sum up"))?;
    Ok(Some((text, task, usage)))
}

/// Starts a run and waits for its end; `None` if the engine stops before it.
async fn run_to_end(gateway: &Gateway, user: &UserId, new: NewRun) -> Result<Option<TaskObject>, Rejection> {
    let started = Box::pin(start_run(gateway, user, new, Uploads::default())).await?;
    let run = ResolvedRun { thread: started.thread, run: started.task, segment: 1, is_new: true, after: started.after };
    let stream = start_of_response(gateway, user, &run, 0).await?;
    match wait_for_end(gateway, user, &run.run, stream).await? {
        StreamEnd::Interrupted => Ok(None),
        StreamEnd::Complete => {
            Ok(Some(gateway.engine.task_object(user, &run.run).await?.ok_or_else(Rejection::not_found)?))
        }
    }
}

/// The summary that a run has written. Half a summary would lose what the other half had.
fn summary_text(task: &TaskObject) -> Result<String, Rejection> {
    let texts = task.output.iter().filter_map(|item| match item {
        Item::Message(message) => Some(message.text()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n\n");
    let code = task.error.as_ref().and_then(ErrorInfo::known_code);
    let reason = match (task.status, &task.error) {
        (TaskStatus::Completed, _) if text.trim().is_empty() => "the model has written none",
        (TaskStatus::Completed, _) if text.len() > PART_BYTES_MAX => "it is too long",
        (TaskStatus::Completed, _) => return Ok(text),
        (_, Some(error)) => &error.message,
        (_, None) => task.reason.as_deref().unwrap_or("the run did not complete"),
    };
    let code = match (task.status, code) {
        (TaskStatus::Cancelled, _) => ErrorCode::Cancelled,
        (_, Some(code @ (ErrorCode::RateLimited | ErrorCode::Overloaded))) => code,
        _ => ErrorCode::RunFailed,
    };
    Err(Rejection::new(code, format!("there is no summary: {reason}")))
}

/// A history as texts, in parts of at most [`PART_BYTES_MAX`]. Calls and pictures are described: a provider takes a call only
/// beside the tools of its turn, and the pictures stay in the user's messages.
fn split_history(entries: &[HistoryEntry]) -> Vec<Vec<HistoryEntry>> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for entry in entries.iter().flat_map(text_entries) {
        let size = serde_json::to_vec(&entry).map_or(PART_BYTES_MAX, |text| text.len());
        if bytes + size > PART_BYTES_MAX && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += size;
        part.push(entry);
    }
    parts.extend(Some(part).filter(|part| !part.is_empty()));
    parts
}

fn text_entries(entry: &HistoryEntry) -> Vec<HistoryEntry> {
    let assistant = |text: String| HistoryEntry::Assistant { id: ItemId::from("msg_0"), text, raw: None };
    let user = |text: String| HistoryEntry::User { content: vec![ContentPart::text(text)] };
    match entry {
        HistoryEntry::Summary { text } => split_text(text).map(|text| HistoryEntry::Summary { text }).collect(),
        HistoryEntry::System { text } => split_text(text).map(|text| HistoryEntry::System { text }).collect(),
        HistoryEntry::User { content } => split_text(&describe_parts(content)).map(user).collect(),
        HistoryEntry::Assistant { text, .. } => split_text(text).map(assistant).collect(),
        HistoryEntry::GeneratedImages { content } => split_text(&describe_parts(content)).map(assistant).collect(),
        HistoryEntry::Call { name, arguments, .. } => {
            split_text(&format!("[calls {name} with {arguments}]")).map(assistant).collect()
        }
        HistoryEntry::Result { content, .. } => {
            split_text(&format!("[result of a call] {}", describe_parts(content))).map(user).collect()
        }
        HistoryEntry::Hosted { name, .. } => vec![assistant(format!("[uses {name}]"))],
        HistoryEntry::Reasoning { .. } => Vec::new(),
    }
}

fn describe_parts(parts: &[ContentPart]) -> String {
    let texts = parts.iter().map(|part| match part {
        ContentPart::Text { text, .. } => text.clone(),
        ContentPart::ImageUrl { .. } => "[image]".to_owned(),
        ContentPart::File { file } => format!("[file {}]", file.display_name().unwrap_or_default()),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Pieces of a text that fit a part. A character of JSON takes at most six bytes.
fn split_text(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(PART_BYTES_MAX / 8);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, later) = rest.split_at(end);
        rest = later;
        Some(piece.to_owned()).filter(|piece| !piece.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> HistoryEntry {
        HistoryEntry::User { content: vec![ContentPart::text(text)] }
    }

    #[test]
    fn every_part_of_a_long_conversation_fits_a_record() {
        let long = "\u{1}é".repeat(PART_BYTES_MAX);
        let entries: Vec<_> = (0..20).map(|_| user(&"word ".repeat(2_000))).chain([user(&long)]).collect();
        let parts = split_history(&entries);
        assert!(parts.len() > 3, "{}", parts.len());
        let text = |entry: &HistoryEntry| describe_parts(entry.parts());
        let all: String = parts.iter().flatten().map(text).collect();
        assert_eq!(all, entries.iter().map(text).collect::<String>(), "nothing is left out");
        for part in &parts {
            assert!(serde_json::to_vec(part).unwrap().len() <= PART_BYTES_MAX + part.len() + 2);
        }
    }

    #[test]
    fn a_window_keeps_the_newest_messages() {
        let entries = [user("old"), user(&"x".repeat(WINDOW_BYTES_MAX - 4)), user("new")];
        let kept = newest_messages(entries.iter());
        assert_eq!(kept.len(), 2, "the oldest is in the summary alone");
        assert_eq!(kept[1], vec![ContentPart::text("new")]);
    }
}
