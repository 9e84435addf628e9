//! Objects of other vendors' protocols in the OpenAPI document, as far as this server knows them. Their requests are
//! parsed leniently, member by member, and their responses may have further members.

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, json};
use std::borrow::Cow;

/// Declares types without values. A member is `name: type!` if it is always there; without the mark it may be absent or
/// `null`, which is the same. A type is one of JSON Schema's, several of them (`string|array`), or a constant in quotation
/// marks.
macro_rules! vendor_objects {
    ($(#[doc = $doc:literal] $name:ident $members:literal;)*) => {
        $(#[doc = $doc]
        pub enum $name {}

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                object_schema($doc.trim(), $members)
            }
        })*
    };
}

vendor_objects! {
    /// A request of OpenAI's Responses API. Other fields are ignored.
    NewResponse "model: string, input: string|array, stream: boolean, background: boolean, store: boolean, \
        previous_response_id: string, conversation: string|object, instructions: string, tools: array, \
        tool_choice: string|object, metadata: object, max_output_tokens: integer, temperature: number, top_p: number, \
        text: object, reasoning: object, parallel_tool_calls: boolean";
    /// A response object of OpenAI's Responses API.
    Response "id: string!, object: 'response'!, status: string!, output: array!";
    /// An event of OpenAI's Responses API. The stream ends with `[DONE]`.
    ResponseStreamEvent "type: string!, sequence_number: integer!";
    /// A request to compact a conversation. Other fields are ignored.
    NewCompaction "model: string!, input: string|array, previous_response_id: string, instructions: string, \
        prompt_cache_key: string";
    /// A compacted conversation of OpenAI's Responses API.
    Compaction "id: string!, object: 'response.compaction'!, created_at: integer!, output: array!, usage: object!";
    /// Items and metadata of a conversation.
    NewConversation "items: array, metadata: object";
    /// The metadata of a conversation.
    ConversationUpdate "metadata: object";
    /// Items for a conversation.
    NewConversationItems "items: array!";
    /// A conversation object of OpenAI's Conversations API.
    ConversationObject "id: string!, object: 'conversation'!, created_at: integer!, metadata: object!";
    /// An item of OpenAI's Responses API.
    ResponseItem "id: string!, type: string!";
    /// A page of items.
    ItemList "object: 'list'!, data: array!, first_id: string|null!, last_id: string|null!, has_more: boolean!";
    /// A deleted object.
    DeletedObject "id: string!, object: string!, deleted: boolean!";
    /// An agent as a model of OpenAI's API.
    ModelObject "id: string!, object: 'model'!, created: integer!, owned_by: string!";
    /// All agents as models of OpenAI's API.
    ModelList "object: 'list'!, data: array!";
    /// A request of Anthropic's Messages API. Other fields are ignored.
    NewMessage "model: string!, messages: array!, system: string|array, stream: boolean, max_tokens: integer, \
        temperature: number, top_p: number, stop_sequences: array, tools: array, tool_choice: object, \
        output_config: object, metadata: object";
    /// A message of Anthropic's Messages API.
    AssistantMessage "id: string!, type: 'message'!, role: 'assistant'!, model: string!, content: array!, \
        stop_reason: string!, stop_sequence: null!, usage: object!";
    /// An event of Anthropic's Messages API. A run that fails or is cancelled ends with `error`.
    MessageStreamEvent "type: string!";
    /// A request of OpenAI's Chat Completions API. Other fields are ignored.
    NewChatCompletion "model: string!, messages: array!, stream: boolean, stream_options: object, \
        max_completion_tokens: integer, max_tokens: integer, temperature: number, top_p: number, stop: string|array, \
        tools: array, tool_choice: string|object, parallel_tool_calls: boolean, response_format: object, \
        reasoning_effort: string, metadata: object";
    /// A completion of OpenAI's Chat Completions API.
    ChatCompletion "id: string!, object: 'chat.completion'!, created: integer!, model: string!, choices: array!, \
        usage: object!";
    /// A chunk of a completion. The stream ends with `[DONE]`; a run that fails or is cancelled ends with an `error`.
    ChatCompletionChunk "id: string!, object: 'chat.completion.chunk'!, created: integer!, model: string!, choices: array!";
    /// A request of the AI SDK's chats: `messages`, or the last one as `message`. Other fields are ignored.
    NewUiMessage "id: string!, messages: array, message: object, trigger: string, messageId: string, agent: string, \
        model: string, tools: array, metadata: object, on_busy: string, answers: object";
    /// A chunk of the AI SDK's UI message stream, which ends with `[DONE]`.
    UiMessageChunk "type: string!";
    /// Messages of the AI SDK, oldest first.
    UiMessageList "messages: array!, hasMore: boolean!";
    /// A request of AG-UI: `RunAgentInput`. Without `protocolVersion` it is one of 0.0.59. Other fields are ignored.
    AgUiRunInput "threadId: string!, runId: string!, messages: array!, protocolVersion: string, parentRunId: string, \
        tools: array, context: array, state: object|array|string|number|boolean, forwardedProps: object, resume: array";
    /// A request to follow the active run of a thread: `RunAgentInput`, of which only these fields are read.
    AgUiConnectInput "threadId: string!, protocolVersion: string";
    /// An event of AG-UI.
    AgUiStreamEvent "type: string!, timestamp: integer";
    /// Which run to stop. Without `runId` it is the active one.
    AgUiStop "runId: string";
    /// Whether there was a run to stop.
    AgUiStopped "stopped: boolean!";
    /// A request of CopilotKit's clients that use one route.
    CopilotKitRequest "method: string!, params: object, body: object";
    /// The agents, and what this runtime has.
    CopilotKitInfo "version: string!, agents: object!, mode: 'sse'!, audioFileTranscriptionEnabled: boolean!, \
        threadEndpoints: object!, telemetryDisabled: boolean!";
}

fn object_schema(description: &str, members: &str) -> Schema {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, kind) in members.split(", ").filter_map(|member| member.split_once(": ")) {
        let (kinds, absent) = kind.strip_suffix('!').map_or((kind, Some("null")), |kinds| (kinds, None));
        let schema = match kinds.split('|').chain(absent).collect::<Vec<_>>()[..] {
            [constant] if constant.starts_with('\'') => json!({ "const": constant.trim_matches('\'') }),
            [kind] => json!({ "type": kind }),
            ref kinds => json!({ "type": kinds }),
        };
        properties.insert(name.to_owned(), schema);
        if absent.is_none() {
            required.push(name);
        }
    }
    json_schema!({ "type": "object", "description": description, "properties": properties, "required": required })
}
