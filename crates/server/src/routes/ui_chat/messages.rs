//! `GET /api/chat/{thread}/messages`: the messages of a chat, for a page that opens it.

use super::parse_version;
use crate::app::App;
use crate::auth::Caller;
use crate::json_response::LongJson;
use crate::problem::Problem;
use crate::query_params;
use crate::routes::ThreadNamePath;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use gateway::ui_streams::{UiMessages, read_ui_messages};
use protocol::ui_stream::UiMessage;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MessagesResponse {
    messages: Vec<UiMessage>,
    has_more: bool,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(chat): ThreadNamePath,
    uri: Uri,
) -> Result<Response, Problem> {
    let [ui, before] = query_params::parse_known_query(&uri, ["ui", "before"])?;
    let version = parse_version(ui.as_deref())?;
    let read = read_ui_messages(&app.gateway, &caller.user, &chat, version, before.as_deref());
    let UiMessages { messages, has_more } = Box::pin(read).await?;
    Ok(LongJson(MessagesResponse { messages, has_more }).into_response())
}
