//! Routes of the AI SDK's chats.

use crate::openapi::{Api, Operation};
use crate::routes::ui_chat::{create, messages, stop, stream};
use model::error::ErrorCode::*;
use protocol::vendor_objects::{NewUiMessage, UiMessageChunk, UiMessageList};
use serde_json::{Value, json};

pub(super) fn add_routes(api: &mut Api) {
    with_version(api.post("/api/chat", create::handle, "sendUiMessage", "Send a message of `useChat`"))
        .description(
            "Adds the last message to the chat `id`; answers the approvals and calls that an assistant's message waits for; or \
             generates an answer again. The log has the history: messages that the client resends are only read for what is \
             new in them. The response ends where the run ends or waits.",
        )
        .blob_urls()
        .starts_run()
        .body::<NewUiMessage>()
        .events::<UiMessageChunk>("The chunks.")
        .errors(&[NotFound, UnmatchedApproval, CallNotFound, AlteredHistory])
        .errors(&[AlreadyDecided, NothingPending, Conflict, ThreadBusy]);
    with_version(api.get("/api/chat/{thread}/stream", stream::handle, "resumeUiMessage", "Resume the current message"))
        .description(
            "The message that is being written or waits, from its start: what was written already comes in few chunks, without \
             ids. With a cursor, the chunks after it.",
        )
        .path_param("thread_id", CHAT_PARAM, chat_name())
        .blob_urls()
        .resumable_events::<UiMessageChunk>("The chunks.")
        .empty(204, "Nothing runs, and nothing has ended in the last minute.");
    with_version(api.get(
        "/api/chat/{thread}/messages",
        messages::handle,
        "listUiMessages",
        "List the messages of a chat",
    ))
    .path_param("thread_id", CHAT_PARAM, chat_name())
    .query("before", "The id of the first message that you have.", json!({ "type": "string" }))
    .blob_urls()
    .json::<UiMessageList>(200, "The newest messages, up to 200.")
    .errors(&[InvalidQuery]);
    api.post("/api/chat/{thread}/stop", stop::handle, "stopUiMessage", "Cancel the active run of a chat")
        .path_param("thread_id", CHAT_PARAM, chat_name())
        .json::<stop::StoppedChat>(200, "Whether anything was stopped.");
}

const CHAT_PARAM: &str = "The client's name for the chat, or the id of its thread.";

fn chat_name() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" })
}

fn with_version(operation: Operation<'_>) -> Operation<'_> {
    operation.query("ui", "The major version of the SDK: `6` by default.", json!({ "enum": ["6", "7"] }))
}
