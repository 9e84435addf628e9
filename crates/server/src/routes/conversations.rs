//! `/v1/conversations`: threads in the format of OpenAI's Conversations API.

pub(crate) mod items;

use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use gateway::conversations::{
    ConversationObject, create_conversation, delete_conversation, find_conversation, update_conversation,
};
use model::json::JsonObject;
use serde_json::{Value, json};

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ConversationObject>, Problem> {
    let mut json = JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?;
    let _large = json.take_permit();
    let metadata = json.metadata();
    let body: JsonObject = json.into_object()?;
    Ok(Json(create_conversation(&app.gateway, &caller.user, &body, metadata).await?.into_object()))
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ConversationObject>, Problem> {
    Ok(Json(find_conversation(&app.gateway, &caller.user, &id).await?.into_object()))
}

pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ConversationObject>, Problem> {
    let json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let metadata = json.metadata();
    let body: JsonObject = json.into_object()?;
    Ok(Json(update_conversation(&app.gateway, &caller.user, &id, &body, metadata).await?.into_object()))
}

pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    delete_conversation(&app.gateway, &caller.user, &id).await?;
    Ok(Json(json!({ "id": id, "object": "conversation.deleted", "deleted": true })))
}
