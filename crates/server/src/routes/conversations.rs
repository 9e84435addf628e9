//! `/v1/conversations`: threads, as clients of OpenAI's Responses know them. A conversation may be there before its thread,
//! and holds items that were put into it until a run reads them.

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
use model::ports::AliasRow;
use model::{ThreadId, UserId};
use protocol::client_input::ClientInput;
use protocol::responses::{self, parse_conversation_items};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// The protocol under which conversations have their names.
const ALIAS_PROTOCOL: &str = "conversations";
/// How much a conversation holds beside its thread.
const CONVERSATION_BYTES_MAX: usize = 128 * 1024;
const MILLIS_PER_SECOND: u64 = 1_000;

/// A conversation.
pub(crate) struct Conversation {
    pub(crate) id: String,
    pub(crate) thread: ThreadId,
    created_at: model::Millis,
    data: ConversationData,
}

/// What a conversation holds beside its thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ConversationData {
    metadata: JsonObject,
    /// Items that no run has read yet.
    items: Vec<Value>,
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
    let note = ConversationData {
        metadata: parse_metadata(&body)?,
        items: parse_new_items(&app, &caller.user, &body, false).await?,
    };
    let id = Uuid::now_v7();
    let conversation = Conversation {
        id: format!("conv_{}", id.simple()),
        thread: ThreadId::from_uuid(id),
        created_at: app.gateway.engine.ports().clock.now(),
        data: note,
    };
    let row = AliasRow {
        protocol: ALIAS_PROTOCOL.to_owned(),
        name: conversation.id.clone(),
        thread: conversation.thread.clone(),
        note: conversation.encode_data()?,
        created_at: conversation.created_at,
    };
    app.gateway.engine.ports().directory.create_alias(&caller.user, row).await?;
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
    let mut conversation = find_conversation(&app, &caller.user, &id).await?;
    conversation.data.metadata = parse_metadata(&body)?;
    conversation.save(&app, &caller.user).await?;
    Ok(axum::Json(conversation.to_json()).into_response())
}

/// The conversation goes; its thread, and what is known of it by other names, stays.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    find_conversation(&app, &caller.user, &id).await?;
    app.gateway.engine.ports().directory.delete_alias(&caller.user, ALIAS_PROTOCOL, &id).await?;
    Ok(axum::Json(json!({ "id": id, "object": "conversation.deleted", "deleted": true })).into_response())
}

/// The conversation of this name.
pub(crate) async fn find_conversation(app: &App, user: &UserId, id: &str) -> Result<Conversation, Problem> {
    let row = match model::id::is_valid_id(id) {
        true => app.gateway.engine.ports().directory.alias(user, ALIAS_PROTOCOL, id).await?,
        false => None,
    };
    let Some(row) = row else {
        let short: String = id.chars().take(80).collect();
        let detail = format!("Conversation with id '{short}' not found.");
        return Err(Problem::new(ErrorCode::NotFound, detail));
    };
    let note = serde_json::from_str(&row.note).unwrap_or_default();
    Ok(Conversation { id: row.name, thread: row.thread, created_at: row.created_at, data: note })
}

impl Conversation {
    fn to_json(&self) -> Value {
        let (created_at, metadata) = (self.created_at / MILLIS_PER_SECOND, &self.data.metadata);
        json!({ "id": self.id, "object": "conversation", "created_at": created_at, "metadata": metadata })
    }

    fn encode_data(&self) -> Result<String, Problem> {
        let text = serde_json::to_string(&self.data).unwrap_or_default();
        if text.len() > CONVERSATION_BYTES_MAX {
            let detail =
                format!("items and metadata that wait in a conversation may be {CONVERSATION_BYTES_MAX} bytes");
            return Err(Problem::new(ErrorCode::RequestTooLarge, detail));
        }
        Ok(text)
    }

    async fn save(&self, app: &App, user: &UserId) -> Result<(), Problem> {
        app.gateway.engine.ports().directory.update_alias(user, ALIAS_PROTOCOL, &self.id, self.encode_data()?).await?;
        Ok(())
    }

    /// What no run has read yet.
    pub(crate) fn pending_input(&self) -> Result<Vec<ClientInput>, Problem> {
        parse_conversation_items(&Value::Array(self.data.items.clone())).map_err(Problem::from)
    }

    /// A run has read what waited. What came meanwhile waits on; a conversation that is gone has nothing that could wait.
    pub(crate) async fn mark_items_read(self, app: &App, user: &UserId) -> Result<(), Problem> {
        if self.data.items.is_empty() {
            return Ok(());
        }
        let Ok(mut now) = find_conversation(app, user, &self.id).await else { return Ok(()) };
        now.data.items.retain(|item| !self.data.items.contains(item));
        now.save(app, user).await
    }
}

fn parse_metadata(body: &JsonObject) -> Result<JsonObject, Problem> {
    responses::parse_metadata(body).map_err(Problem::from)
}

/// The items of a request, each with a name. What they bring along is looked at here and kept when a run reads them: the
/// conversation may have no thread yet that could hold it.
async fn parse_new_items(app: &App, user: &UserId, body: &JsonObject, needed: bool) -> Result<Vec<Value>, Problem> {
    let given = body.get("items").filter(|items| !items.is_null());
    let Some(given) = given else {
        return if needed {
            Err(Problem::invalid_field("items", "a list of items is required"))
        } else {
            Ok(Vec::new())
        };
    };
    let mut said = parse_conversation_items(given).map_err(Problem::from)?;
    let luggage =
        Uploads::extract(&app.gateway.attachments, "items", uploads::parts_of_client_input(&mut said)).await?;
    luggage.check_owned(&app.gateway.attachments, user, uploads::parts_of_client_input(&mut said)).await?;
    let named = |mut item: Value| {
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
    Ok(given.as_array().into_iter().flatten().cloned().map(named).collect())
}
