//! Routes of other vendors' APIs.

use crate::openapi::{Api, Operation};
use crate::routes::conversations::items;
use crate::routes::*;
use crate::ws;
use model::error::ErrorCode::*;
use protocol::vendor_objects::*;
use serde_json::json;

const CONVERSATION: &str = "/v1/conversations/{conversation}";
const ITEMS: &str = "/v1/conversations/{conversation}/items";
const ITEM: &str = "/v1/conversations/{conversation}/items/{item}";

pub(super) fn add_routes(api: &mut Api) {
    api.group("responses", "Runs and threads in OpenAI's Responses and Conversations APIs.");
    add_response_routes(api);
    add_conversation_routes(api);
    api.group("messages", "Runs in Anthropic's Messages API.");
    add_message_route(api);
    api.group("chat completions", "Runs in OpenAI's Chat Completions API.");
    add_chat_route(api);
    api.group("ui message stream", "Chats of the AI SDK (`useChat`).");
    super::ui_chat::add_routes(api);
}

fn add_response_routes(api: &mut Api) {
    api.post("/v1/responses", responses::create::handle, "createResponse", "Create a response")
        .description(
            "Starts a run; answers the pending requests of one (`function_call_output`, `mcp_approval_response`); or \
             continues after `previous_response_id`, in a `conversation`, or in the run that the ids of resent items \
             name.",
        )
        .blob_urls()
        .starts_run()
        .body::<NewResponse>()
        .json::<Response>(200, "The ended response; with `background`, its current state.")
        .events::<ResponseStreamEvent>("")
        .errors(&[PreviousResponseNotFound, UnmatchedApproval, CallNotFound, NotFound])
        .errors(&[AlreadyDecided, NothingPending, Conflict]);
    api.get("/v1/responses", ws::responses::handle, "openResponsesSocket", "Create responses over a WebSocket")
        .description(
            "Messages are JSON texts. In: `response.create`, with the fields of `POST /v1/responses`. Out: the events of each \
             response, one response after the other, or an `error` with `status` in place of a response that was refused. The \
             query is ignored.",
        )
        .ticket()
        .blob_urls()
        .empty(101, "The socket is open.")
        .errors(&[InvalidHandshake, UpgradeRequired, TooManyStreams]);
    api.post("/v1/responses/compact", responses::compact::handle, "compactResponse", "Compact a conversation")
        .description(
            "A model sums up the conversation in `input`, that of `previous_response_id`, or both. `output` has the user's \
             newest messages and one `compaction` item: send it back as the beginning of the next `input`.",
        )
        .starts_run()
        .body::<NewCompaction>()
        .json::<Compaction>(200, "The messages and the summary. Its id cannot be retrieved or continued.")
        .errors(&[PreviousResponseNotFound, ModelNotFound, RateLimited, RunFailed, Cancelled, Overloaded]);
    api.get("/v1/responses/{response}", responses::get::handle, "getResponse", "Get a response or its stream")
        .ticket()
        .blob_urls()
        .query("stream", "Respond with the events.", json!({ "type": "boolean", "default": false }))
        .query("starting_after", "The number of the last event received.", json!({ "type": "integer", "minimum": 0 }))
        .json::<Response>(200, "The response.")
        .events::<ResponseStreamEvent>("")
        .errors(&[InvalidQuery]);
    api.delete("/v1/responses/{response}", responses::delete::handle, "deleteResponse", "Hide a response")
        .json::<DeletedObject>(200, "The response is hidden. Its thread keeps the log.");
    api.post("/v1/responses/{response}/cancel", responses::cancel::handle, "cancelResponse", "Cancel a response")
        .json::<Response>(200, "The ended response.");
    api.get("/v1/responses/{response}/input_items", responses::input_items::handle, "listInputItems", "List its input")
        .openai_paged()
        .blob_urls()
        .json::<ItemList>(200, "A page of items.");
}

fn add_conversation_routes(api: &mut Api) {
    api.post("/v1/conversations", conversations::create, "createConversation", "Create a conversation")
        .optional_body::<NewConversation>()
        .json::<ConversationObject>(200, "The conversation.")
        .errors(&[RequestTooLarge, ImageTooLarge]);
    api.get(CONVERSATION, conversations::get, "getConversation", "Get a conversation")
        .json::<ConversationObject>(200, "The conversation.");
    api.post(CONVERSATION, conversations::update, "updateConversation", "Replace its metadata")
        .body::<ConversationUpdate>()
        .json::<ConversationObject>(200, "The conversation.")
        .errors(&[Conflict, RequestTooLarge]);
    api.delete(CONVERSATION, conversations::delete, "deleteConversation", "Delete a conversation")
        .json::<DeletedObject>(200, "The conversation is deleted. Its responses stay.");
    api.get(ITEMS, items::list, "listConversationItems", "List its items")
        .openai_paged()
        .blob_urls()
        .json::<ItemList>(200, "A page of items.");
    api.post(ITEMS, items::create, "addConversationItems", "Add items")
        .description("The next response in the conversation reads them.")
        .body::<NewConversationItems>()
        .json::<ItemList>(200, "The new items.")
        .errors(&[Conflict, RequestTooLarge, ImageTooLarge]);
    api.get(ITEM, items::get, "getConversationItem", "Get an item").blob_urls().json::<ResponseItem>(200, "The item.");
    api.delete(ITEM, items::delete, "deleteConversationItem", "Remove an unread item")
        .json::<ConversationObject>(200, "The conversation.")
        .errors(&[Unsupported, Conflict]);
    api.get("/v1/models", models::list, "listModels", "List the agents that you may call, as models")
        .json::<ModelList>(200, "The agents.");
    api.get("/v1/models/{*model}", models::get, "getModel", "Get an agent or a `provider/model`")
        .json::<ModelObject>(200, "The model.")
        .errors(&[ModelNotFound, ModelNotAllowed]);
}

fn add_message_route(api: &mut Api) {
    stateless(api.post("/v1/messages", message_create::handle, "createMessage", "Create a message"))
        .body::<NewMessage>()
        .json::<AssistantMessage>(
            200,
            "The message; with `stream`, its events. The server's tools are `mcp_tool_use` and `mcp_tool_result` of the \
             server `headwater`.",
        )
        .events::<MessageStreamEvent>("");
}

fn add_chat_route(api: &mut Api) {
    stateless(api.post("/v1/chat/completions", chat_create::handle, "createChatCompletion", "Create a completion"))
        .body::<NewChatCompletion>()
        .json::<ChatCompletion>(
            200,
            "The completion; with `stream`, its chunks. Calls of the server's tools are not shown.",
        )
        .events::<ChatCompletionChunk>("");
}

/// The documentation that Messages and Chat Completions share.
fn stateless(operation: Operation<'_>) -> Operation<'_> {
    operation
        .description(
            "The client sends its whole history. Ids of this server in it name the thread to continue; the result of a \
             call that a run waits for continues that run; anything else starts a thread. The response ends with the run, \
             or where the run waits for the client's tools; it stays open while the run waits for an approval.",
        )
        .blob_urls()
        .starts_run()
        .errors(&[CallNotFound, ModelNotFound, NothingPending, RateLimited, RunFailed, Cancelled, Overloaded])
}
