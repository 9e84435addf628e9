//! `/v1/conversations`: threads in the format of OpenAI's Conversations API. A conversation may be older than its
//! thread, and holds added items until a run reads them.
//!
//! Every change is compare-and-set, so that concurrent requests do not overwrite each other's items.

pub(crate) mod items;

use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use gateway::attachments::uploads::{self, Uploads};
use model::error::ErrorCode;
use model::json::JsonObject;
use model::ports::{AliasData, AliasKind, AliasRow, AliasUpdate, ConversationData};
use model::{ThreadId, UserId};
use protocol::client_input::ClientInput;
use protocol::responses::{self, parse_conversation_items};
use serde_json::{Value, json};
use uuid::Uuid;

/// Maximum size of the items and the metadata of a conversation.
const CONVERSATION_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of attempts to change a conversation that other requests change at the same time.
const UPDATE_ATTEMPTS_MAX: usize = 16;
const MILLIS_PER_SECOND: u64 = 1_000;

pub(crate) struct Conversation {
    pub(crate) id: String,
    pub(crate) thread: ThreadId,
    created_at: model::Millis,
    data: ConversationData,
}

/// Whether a request must have items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemsField {
    Optional,
    Required,
}

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut json = JsonBody::read_optional(&headers, body, &app.limits).await?;
    let _large = json.take_permit();
    let body: JsonObject = json.into_object()?;
    let data = ConversationData {
        metadata: parse_metadata(&body)?,
        items: parse_new_items(&app, &caller.user, &body, ItemsField::Optional).await?,
    };
    let id = Uuid::now_v7();
    let conversation = Conversation {
        id: format!("conv_{}", id.simple()),
        thread: ThreadId::from_uuid(id),
        created_at: app.gateway.engine.ports().clock.now(),
        data,
    };
    conversation.check_size()?;
    let writer = app.gateway.engine.ports().directory.writer(&caller.user)?;
    writer.create_alias(&caller.user, conversation.to_row()).await?;
    Ok(axum::Json(conversation.to_json()).into_response())
}

pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(find_conversation(&app, &caller.user, &id).await?.to_json()).into_response())
}

pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body: JsonObject = JsonBody::read(&headers, body, &app.limits).await?.into_object()?;
    let metadata = parse_metadata(&body)?;
    let conversation = change_conversation(&app, &caller.user, &id, |data| {
        data.metadata.clone_from(&metadata);
        Ok(())
    });
    let conversation = conversation.await?.ok_or_else(|| conversation_not_found(&id))?;
    Ok(axum::Json(conversation.to_json()).into_response())
}

/// Deletes the conversation; its thread and the thread's other aliases stay.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    find_conversation(&app, &caller.user, &id).await?;
    app.gateway
        .engine
        .ports()
        .directory
        .writer(&caller.user)?
        .delete_alias(&caller.user, AliasKind::Conversation, &id)
        .await?;
    Ok(axum::Json(json!({ "id": id, "object": "conversation.deleted", "deleted": true })).into_response())
}

pub(crate) async fn find_conversation(app: &App, user: &UserId, id: &str) -> Result<Conversation, Problem> {
    load_conversation(app, user, id).await?.ok_or_else(|| conversation_not_found(id))
}

async fn load_conversation(app: &App, user: &UserId, id: &str) -> Result<Option<Conversation>, Problem> {
    if !model::id::is_valid_id(id) {
        return Ok(None);
    }
    let row = app.gateway.engine.ports().directory.alias(user, AliasKind::Conversation, id).await?;
    Ok(row.and_then(|AliasRow { name: id, thread, data, created_at }| match data {
        AliasData::Conversation(data) => Some(Conversation { id, thread, created_at, data }),
        AliasData::AgentRun | AliasData::BlockSession | AliasData::DeletedResponse => None,
    }))
}

/// Applies a change to a conversation, again on a newer row if another request was faster. `None` when there is no such
/// conversation.
async fn change_conversation(
    app: &App,
    user: &UserId,
    id: &str,
    change: impl Fn(&mut ConversationData) -> Result<(), Problem> + Send + Sync,
) -> Result<Option<Conversation>, Problem> {
    for _ in 0..UPDATE_ATTEMPTS_MAX {
        let Some(mut conversation) = load_conversation(app, user, id).await? else { return Ok(None) };
        let current = conversation.to_row();
        change(&mut conversation.data)?;
        conversation.check_size()?;
        let writer = app.gateway.engine.ports().directory.writer(user)?;
        match writer.update_conversation(user, &current, conversation.data.clone()).await? {
            AliasUpdate::Updated => return Ok(Some(conversation)),
            AliasUpdate::Conflict => {}
            AliasUpdate::NotFound => return Ok(None),
        }
    }
    let detail = "other requests keep changing this conversation: try again";
    Err(Problem::new(ErrorCode::Conflict, detail))
}

fn conversation_not_found(id: &str) -> Problem {
    let short: String = id.chars().take(80).collect();
    Problem::new(ErrorCode::NotFound, format!("Conversation with id '{short}' not found."))
}

impl Conversation {
    fn to_json(&self) -> Value {
        let (created_at, metadata) = (self.created_at / MILLIS_PER_SECOND, &self.data.metadata);
        json!({ "id": self.id, "object": "conversation", "created_at": created_at, "metadata": metadata })
    }

    fn to_row(&self) -> AliasRow {
        AliasRow {
            name: self.id.clone(),
            thread: self.thread.clone(),
            data: AliasData::Conversation(self.data.clone()),
            created_at: self.created_at,
        }
    }

    fn check_size(&self) -> Result<(), Problem> {
        if self.data.to_stored().len() > CONVERSATION_BYTES_MAX {
            let detail =
                format!("items and metadata that wait in a conversation may be {CONVERSATION_BYTES_MAX} bytes");
            return Err(Problem::new(ErrorCode::RequestTooLarge, detail));
        }
        Ok(())
    }

    /// The items that no run has read yet.
    pub(crate) fn pending_input(&self) -> Result<Vec<ClientInput>, Problem> {
        parse_conversation_items(&Value::Array(self.data.items.clone())).map_err(Problem::from)
    }

    /// Removes the items that a run has read. Items that were added meanwhile stay; a deleted conversation has none.
    pub(crate) async fn mark_items_read(self, app: &App, user: &UserId) -> Result<(), Problem> {
        if self.data.items.is_empty() {
            return Ok(());
        }
        let removed = change_conversation(app, user, &self.id, |data| {
            data.items.retain(|item| !self.data.items.contains(item));
            Ok(())
        });
        removed.await.map(drop)
    }
}

fn parse_metadata(body: &JsonObject) -> Result<JsonObject, Problem> {
    responses::parse_metadata(body).map_err(Problem::from)
}

/// The items of a request, each with an id. Their attachments are checked here and stored when a run reads the items,
/// because the conversation may have no thread yet.
async fn parse_new_items(
    app: &App,
    user: &UserId,
    body: &JsonObject,
    field: ItemsField,
) -> Result<Vec<Value>, Problem> {
    let Some(items) = body.get("items").filter(|items| !items.is_null()) else {
        return match field {
            ItemsField::Required => Err(Problem::invalid_field("items", "a list of items is required")),
            ItemsField::Optional => Ok(Vec::new()),
        };
    };
    let mut inputs = parse_conversation_items(items).map_err(Problem::from)?;
    let uploads =
        Uploads::extract(&app.gateway.attachments, "items", uploads::parts_of_client_input(&mut inputs)).await?;
    uploads.check_owned(&app.gateway.attachments, user, uploads::parts_of_client_input(&mut inputs)).await?;
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
