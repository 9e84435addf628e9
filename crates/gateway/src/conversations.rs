//! Conversations of OpenAI's Conversations API: threads with metadata, which may be older than their first run and hold
//! added items until a run reads them.
//!
//! Every change is compare-and-set, so that concurrent requests do not overwrite each other's items.

use crate::attachments::uploads::{self, Uploads};
use crate::compaction_item::open_summaries;
use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::responses::{ResponseRef, input_items_of_run, read_response};
use model::error::{ErrorCode, truncate_text};
use model::json::{ExactObject, JsonObject};
use model::ports::{AliasData, AliasKind, AliasRow, AliasUpdate, ConversationData, ListPage, RunFilter, RunRow};
use model::{Millis, TaskId, ThreadId, UserId};
use protocol::client_input::ClientInput;
use protocol::responses::{check_metadata, parse_conversation_items};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Maximum size of the items and the metadata of a conversation.
const CONVERSATION_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of attempts to change a conversation that other requests change at the same time.
const UPDATE_ATTEMPTS_MAX: usize = 16;
const MILLIS_PER_SECOND: u64 = 1_000;
/// Number of runs that are read at a time.
const RUNS_PAGE_SIZE: usize = 100;

pub struct Conversation {
    pub id: String,
    pub thread: ThreadId,
    created_at: Millis,
    data: ConversationData,
}

/// A conversation as clients see it. Not a JSON value, which would round the numbers of its metadata.
#[derive(Serialize)]
pub struct ConversationObject {
    created_at: u64,
    id: String,
    metadata: ExactObject,
    object: &'static str,
}

/// Whether a request must have items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemsField {
    Optional,
    Required,
}

/// Creates a conversation from the body of a request. Its metadata comes apart, with its numbers as they were written.
pub async fn create_conversation(
    gateway: &Gateway,
    user: &UserId,
    body: &JsonObject,
    metadata: ExactObject,
) -> Result<Conversation, Rejection> {
    check_metadata(body)?;
    let data = ConversationData { metadata, items: parse_new_items(gateway, user, body, ItemsField::Optional).await? };
    let id = Uuid::now_v7();
    let conversation = Conversation {
        id: format!("conv_{}", id.simple()),
        thread: ThreadId::from_uuid(id),
        created_at: gateway.engine.ports().clock.now(),
        data,
    };
    conversation.check_size()?;
    gateway.engine.ports().directory.writer(user)?.create_alias(user, conversation.to_row()).await?;
    Ok(conversation)
}

/// Replaces the metadata of a conversation.
pub async fn update_conversation(
    gateway: &Gateway,
    user: &UserId,
    id: &str,
    body: &JsonObject,
    metadata: ExactObject,
) -> Result<Conversation, Rejection> {
    check_metadata(body)?;
    let conversation = change_conversation(gateway, user, id, |data| {
        data.metadata.clone_from(&metadata);
        Ok(())
    });
    conversation.await?.ok_or_else(|| conversation_not_found(id))
}

/// Deletes the conversation; its thread and the thread's other aliases stay.
pub async fn delete_conversation(gateway: &Gateway, user: &UserId, id: &str) -> Result<(), Rejection> {
    find_conversation(gateway, user, id).await?;
    let writer = gateway.engine.ports().directory.writer(user)?;
    writer.delete_alias(user, AliasKind::Conversation, id).await?;
    Ok(())
}

/// Adds the items of a request, and returns them as they are stored.
pub async fn add_conversation_items(
    gateway: &Gateway,
    user: &UserId,
    id: &str,
    body: &JsonObject,
) -> Result<Vec<Value>, Rejection> {
    let items = parse_new_items(gateway, user, body, ItemsField::Required).await?;
    let changed = change_conversation(gateway, user, id, |data| {
        data.items.extend(items.iter().cloned());
        Ok(())
    });
    changed.await?.ok_or_else(|| conversation_not_found(id))?;
    Ok(items)
}

/// Removes an item that no run has read; an item that was read stays in the log.
pub async fn remove_conversation_item(
    gateway: &Gateway,
    user: &UserId,
    id: &str,
    item: &str,
) -> Result<Conversation, Rejection> {
    let changed = change_conversation(gateway, user, id, |data| {
        let before = data.items.len();
        data.items.retain(|value| !has_id(value, item));
        if data.items.len() == before {
            let detail = "an item that was read cannot be taken out of its log: delete the conversation's thread";
            return Err(Rejection::new(ErrorCode::Unsupported, detail));
        }
        Ok(())
    });
    changed.await?.ok_or_else(|| conversation_not_found(id))
}

pub async fn find_conversation(gateway: &Gateway, user: &UserId, id: &str) -> Result<Conversation, Rejection> {
    load_conversation(gateway, user, id).await?.ok_or_else(|| conversation_not_found(id))
}

async fn load_conversation(gateway: &Gateway, user: &UserId, id: &str) -> Result<Option<Conversation>, Rejection> {
    if !model::id::is_valid_id(id) {
        return Ok(None);
    }
    let row = gateway.engine.ports().directory.alias(user, AliasKind::Conversation, id).await?;
    Ok(row.and_then(|AliasRow { name: id, thread, data, created_at }| match data {
        AliasData::Conversation(data) => Some(Conversation { id, thread, created_at, data }),
        AliasData::AgentRun
        | AliasData::BlockSession
        | AliasData::DeletedResponse
        | AliasData::AgUiThread
        | AliasData::UiChat => None,
    }))
}

/// Applies a change to a conversation, again on a newer row if another request was faster. `None` when there is no such
/// conversation.
async fn change_conversation(
    gateway: &Gateway,
    user: &UserId,
    id: &str,
    change: impl Fn(&mut ConversationData) -> Result<(), Rejection> + Send + Sync,
) -> Result<Option<Conversation>, Rejection> {
    for _ in 0..UPDATE_ATTEMPTS_MAX {
        let Some(mut conversation) = load_conversation(gateway, user, id).await? else { return Ok(None) };
        let current = conversation.to_row();
        change(&mut conversation.data)?;
        conversation.check_size()?;
        let writer = gateway.engine.ports().directory.writer(user)?;
        match writer.update_conversation(user, &current, conversation.data.clone()).await? {
            AliasUpdate::Updated => return Ok(Some(conversation)),
            AliasUpdate::Conflict => {}
            AliasUpdate::NotFound => return Ok(None),
        }
    }
    let detail = "other requests keep changing this conversation: try again";
    Err(Rejection::new(ErrorCode::Conflict, detail))
}

fn conversation_not_found(id: &str) -> Rejection {
    let short: String = id.chars().take(80).collect();
    Rejection::new(ErrorCode::NotFound, format!("Conversation with id '{short}' not found."))
}

impl Conversation {
    #[must_use]
    pub fn into_object(self) -> ConversationObject {
        ConversationObject {
            created_at: self.created_at / MILLIS_PER_SECOND,
            id: self.id,
            metadata: self.data.metadata,
            object: "conversation",
        }
    }

    fn to_row(&self) -> AliasRow {
        AliasRow {
            name: self.id.clone(),
            thread: self.thread.clone(),
            data: AliasData::Conversation(self.data.clone()),
            created_at: self.created_at,
        }
    }

    fn check_size(&self) -> Result<(), Rejection> {
        if self.data.to_stored().len() > CONVERSATION_BYTES_MAX {
            let detail =
                format!("items and metadata that wait in a conversation may be {CONVERSATION_BYTES_MAX} bytes");
            return Err(Rejection::new(ErrorCode::RequestTooLarge, detail));
        }
        Ok(())
    }

    /// The items that no run has read yet, as they are stored.
    #[must_use]
    pub fn pending_items(&self) -> &[Value] {
        &self.data.items
    }

    /// The items that no run has read yet.
    pub fn pending_input(&self) -> Result<Vec<ClientInput>, Rejection> {
        Ok(parse_conversation_items(&Value::Array(self.data.items.clone()))?)
    }

    /// Removes the items that a run has read. Items that were added meanwhile stay; a deleted conversation has none.
    pub async fn mark_items_read(self, gateway: &Gateway, user: &UserId) -> Result<(), Rejection> {
        if self.data.items.is_empty() {
            return Ok(());
        }
        let removed = change_conversation(gateway, user, &self.id, |data| {
            data.items.retain(|item| !self.data.items.contains(item));
            Ok(())
        });
        removed.await.map(drop)
    }
}

/// The items of a request, each with an id. Their attachments are checked here and stored when a run reads the items,
/// because the conversation may have no thread yet.
async fn parse_new_items(
    gateway: &Gateway,
    user: &UserId,
    body: &JsonObject,
    field: ItemsField,
) -> Result<Vec<Value>, Rejection> {
    let Some(items) = body.get("items").filter(|items| !items.is_null()) else {
        return match field {
            ItemsField::Required => Err(Rejection::invalid_field("items", "a list of items is required")),
            ItemsField::Optional => Ok(Vec::new()),
        };
    };
    let mut inputs = parse_conversation_items(items)?;
    open_summaries(gateway, user, &mut inputs)?;
    let uploads = Uploads::extract(&gateway.attachments, "items", uploads::parts_of_client_input(&mut inputs)).await?;
    uploads.check_owned(&gateway.attachments, user, uploads::parts_of_client_input(&mut inputs)).await?;
    let complete_item = |mut item: Value| {
        if let Some(fields) = item.as_object_mut() {
            fields.entry("type").or_insert_with(|| "message".into());
            fields.entry("id").or_insert_with(|| format!("msg_{}", Uuid::now_v7().simple()).into());
            fields.entry("status").or_insert_with(|| "completed".into());
            if let Some(Value::String(text)) = fields.get("content").cloned() {
                let kind = if fields.get("role") == Some(&json!("assistant")) { "output_text" } else { "input_text" };
                fields.insert("content".to_owned(), json!([{ "type": kind, "text": text }]));
            }
        }
        item
    };
    Ok(items.as_array().into_iter().flatten().cloned().map(complete_item).collect())
}

/// The runs of a conversation that have started, newest first.
pub async fn started_runs(
    gateway: &Gateway,
    user: &UserId,
    conversation: &Conversation,
) -> Result<Vec<RunRow>, Rejection> {
    let filter = RunFilter { thread: Some(conversation.thread.clone()), ..RunFilter::default() };
    let mut all: Vec<RunRow> = Vec::new();
    loop {
        let page = ListPage { before: all.last().map(|run| run.id.to_string()), limit: RUNS_PAGE_SIZE };
        let runs = gateway.engine.ports().directory.runs(user, filter.clone(), page).await?;
        if runs.is_empty() {
            return Ok(all.into_iter().filter(|run| run.first_seq.is_some()).collect());
        }
        all.extend(runs);
    }
}

/// The items of a run, in order. An item that several segments of the run have appears once, at its last position.
pub async fn items_of_run(gateway: &Gateway, user: &UserId, run: &RunRow) -> Result<Vec<Value>, Rejection> {
    let mut items = Vec::new();
    for segment in 1.. {
        let found = ResponseRef { run: run.clone(), segment };
        let Some(read) = read_response(gateway, user, &found).await? else { break };
        items.extend(input_items_of_run(gateway, user, &found).await?);
        items.extend(read.object().get("output").and_then(Value::as_array).into_iter().flatten().cloned());
        if !read.is_ended {
            break;
        }
    }
    let mut seen = BTreeSet::new();
    let mut unique: Vec<Value> = items.into_iter().rev().filter(|item| seen.insert(item_id(item))).collect();
    unique.reverse();
    Ok(unique)
}

fn item_id(item: &Value) -> Option<String> {
    item.get("id").and_then(Value::as_str).map(str::to_owned)
}

/// Finds an item among those that wait and those of the runs.
pub async fn find_conversation_item(
    gateway: &Gateway,
    user: &UserId,
    conversation: &Conversation,
    item: &str,
) -> Result<Value, Rejection> {
    if let Some(found) = conversation.data.items.iter().find(|value| has_id(value, item)) {
        return Ok(found.clone());
    }
    // The id of an item contains that of its run.
    let run = match TaskId::from(item).run_id() {
        Some(run) => gateway.engine.run_of_task(user, &run).await?,
        None => None,
    };
    let run = run.filter(|run| run.thread == conversation.thread);
    let items = match &run {
        Some(run) => items_of_run(gateway, user, run).await?,
        None => Vec::new(),
    };
    items.into_iter().find(|value| has_id(value, item)).ok_or_else(|| {
        let short = truncate_text(item, 80);
        Rejection::new(ErrorCode::NotFound, format!("Item with id '{short}' not found."))
    })
}

fn has_id(item: &Value, id: &str) -> bool {
    item.get("id").and_then(Value::as_str) == Some(id)
}
