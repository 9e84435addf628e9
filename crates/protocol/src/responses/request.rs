//! What a client asks of us: the body of a request, in our words. Fields that we do not know are left alone, for SDKs send
//! new ones all the time; fields that we know have to be what they say.

use super::request_items::{parse_items, text_input};
use crate::client_input::{ClientInput, InvalidField};
use model::event::ClientTool;
use model::json::JsonObject;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use serde_json::{Value, json};

/// The label under which our own tools are known to clients that declare servers.
pub const SERVER_LABEL: &str = "headwater";

/// What a response shows back of its request, where that says anything.
pub(super) const ECHOED_FIELDS: [&str; 22] = [
    "background",
    "conversation",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsesRequest {
    /// The agent, or `provider/model`.
    pub model: Option<String>,
    /// What is said.
    pub input: Vec<ClientInput>,
    /// Is the answer to be streamed?
    pub stream: bool,
    /// Is it to be answered at once, and to be asked for later?
    pub background: bool,
    /// May it be asked for later?
    pub store: bool,
    /// The response that it goes on from.
    pub previous_response_id: Option<String>,
    /// The conversation that it belongs to.
    pub conversation: Option<String>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    /// What is asked of the model.
    pub model_settings: ModelSettings,
    /// The caller's own notes.
    pub metadata: JsonObject,
    /// What a response shows back.
    pub request_echo: JsonObject,
}

/// Reads the body of a request.
///
/// # Errors
/// When a field is not what it has to be.
pub fn parse_responses_request(body: &JsonObject) -> Result<ResponsesRequest, InvalidField> {
    let asked = ResponsesRequest {
        model: optional_string(body, "model")?,
        input: parse_input(body)?,
        stream: optional_bool(body, "stream")?.unwrap_or(false),
        background: optional_bool(body, "background")?.unwrap_or(false),
        store: optional_bool(body, "store")?.unwrap_or(true),
        previous_response_id: optional_string(body, "previous_response_id")?,
        conversation: parse_conversation_id(body)?,
        tools: parse_client_tools(body)?,
        model_settings: parse_model_settings(body)?,
        metadata: parse_metadata(body)?,
        request_echo: ECHOED_FIELDS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), non_null_field(body, name)?.clone())))
            .collect(),
    };
    if asked.background && !asked.store {
        return Err(InvalidField::new(
            "background",
            "what is not stored cannot be asked for later: leave out `store: false`",
        ));
    }
    if asked.previous_response_id.is_some() && asked.conversation.is_some() {
        return Err(InvalidField::new("previous_response_id", "it cannot be given together with `conversation`"));
    }
    Ok(asked)
}

/// Reads the items of a request that only adds to a conversation.
///
/// # Errors
/// When they are no items.
pub fn parse_conversation_items(value: &Value) -> Result<Vec<ClientInput>, InvalidField> {
    match value {
        Value::Array(list) => parse_items("items", list),
        _ => Err(InvalidField::new("items", "expected a list of items")),
    }
}

fn parse_input(body: &JsonObject) -> Result<Vec<ClientInput>, InvalidField> {
    match non_null_field(body, "input") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text_input(text).into_iter().collect()),
        Some(Value::Array(list)) => parse_items("input", list),
        Some(_) => Err(InvalidField::new("input", "expected a text or a list of items")),
    }
}

fn parse_model_settings(body: &JsonObject) -> Result<ModelSettings, InvalidField> {
    let reasoning = non_null_field(body, "reasoning").cloned().unwrap_or_default();
    Ok(ModelSettings {
        instructions: optional_string(body, "instructions")?.filter(|text| !text.trim().is_empty()),
        max_output_tokens: optional_positive(body, "max_output_tokens")?,
        temperature: optional_number(body, "temperature", 2.0)?,
        top_p: optional_number(body, "top_p", 1.0)?,
        stop: Vec::new(),
        tool_choice: parse_tool_choice(body)?,
        parallel_tool_calls: optional_bool(body, "parallel_tool_calls")?,
        effort: reasoning.get("effort").and_then(Value::as_str).map(str::to_owned),
        format: parse_output_format(body)?,
    })
}

fn parse_output_format(body: &JsonObject) -> Result<Option<OutputFormat>, InvalidField> {
    let Some(format) =
        non_null_field(body, "text").and_then(|text| text.get("format")).filter(|format| !format.is_null())
    else {
        return Ok(None);
    };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::Json)),
        Some("json_schema") => {
            let schema = format.get("schema").filter(|schema| schema.is_object()).cloned();
            let schema = schema.ok_or_else(|| InvalidField::new("text.format.schema", "expected a JSON Schema"))?;
            let name = format.get("name").and_then(Value::as_str).unwrap_or("answer").to_owned();
            let strict = format.get("strict").and_then(Value::as_bool);
            Ok(Some(OutputFormat::Schema { name, schema, strict }))
        }
        _ => Err(InvalidField::new("text.format.type", "expected `text`, `json_object` or `json_schema`")),
    }
}

fn parse_tool_choice(body: &JsonObject) -> Result<Option<ToolChoice>, InvalidField> {
    let Some(choice) = non_null_field(body, "tool_choice") else { return Ok(None) };
    let mode = |mode: Option<&str>| match mode {
        Some("auto") => Ok(Some(ToolChoice::Auto)),
        Some("none") => Ok(Some(ToolChoice::None)),
        Some("required") => Ok(Some(ToolChoice::Required)),
        _ => Err(InvalidField::new("tool_choice", "expected `auto`, `none`, `required` or a tool")),
    };
    let Value::Object(fields) = choice else { return mode(choice.as_str()) };
    match fields.get("type").and_then(Value::as_str) {
        Some("function" | "custom") => {
            let name = fields.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| InvalidField::new("tool_choice.name", "expected the name of a tool"))?;
            Ok(Some(ToolChoice::Tool { name: name.to_owned() }))
        }
        Some("allowed_tools") => mode(fields.get("mode").and_then(Value::as_str).or(Some("auto"))),
        // A server of ours, named or not, or what a provider runs: the model has it anyhow.
        Some("mcp") => match fields.get("name").and_then(Value::as_str) {
            Some(name) => Ok(Some(ToolChoice::Tool { name: name.to_owned() })),
            None => Ok(Some(ToolChoice::Required)),
        },
        Some(_) => Ok(None),
        None => mode(None),
    }
}

/// The tools that the client runs. What a provider runs itself is an operator's to declare, and is left alone; a server
/// that only the client knows cannot be asked.
fn parse_client_tools(body: &JsonObject) -> Result<Vec<ClientTool>, InvalidField> {
    let list = match non_null_field(body, "tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(InvalidField::new("tools", "expected a list")),
    };
    let allowed = allowed_tool_names(body);
    let mut tools = Vec::new();
    for (place, tool) in list.iter().enumerate() {
        let field = |name: &str| tool.get(name).and_then(Value::as_str);
        match field("type") {
            Some("function") => {
                let named = field("name").filter(|name| !name.is_empty());
                let name = named.ok_or_else(|| InvalidField::new(format!("tools[{place}].name"), "expected a name"))?;
                let parameters = tool.get("parameters").filter(|schema| !schema.is_null()).cloned();
                let parameters = parameters.unwrap_or_else(|| json!({ "type": "object" }));
                let description = field("description").unwrap_or_default().to_owned();
                if allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|allowed| allowed == name)) {
                    tools.push(ClientTool { name: name.to_owned(), description, parameters });
                }
            }
            Some("mcp") if field("server_label") != Some(SERVER_LABEL) => {
                let why = format!("only `{SERVER_LABEL}` can be named here: other servers are declared in the config");
                return Err(InvalidField::new(format!("tools[{place}].server_label"), why));
            }
            Some("custom") => {
                let why = "tools of free text are not supported: declare a function";
                return Err(InvalidField::new(format!("tools[{place}].type"), why));
            }
            Some(_) => {}
            None => return Err(InvalidField::new(format!("tools[{place}].type"), "expected a type")),
        }
    }
    Ok(tools)
}

/// The names that a choice of several tools leaves.
fn allowed_tool_names(body: &JsonObject) -> Option<Vec<String>> {
    let choice = non_null_field(body, "tool_choice")?;
    let tools = choice.get("tools").filter(|_| choice.get("type").and_then(Value::as_str) == Some("allowed_tools"))?;
    let name = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
    Some(tools.as_array()?.iter().filter_map(name).collect())
}

fn parse_conversation_id(body: &JsonObject) -> Result<Option<String>, InvalidField> {
    let id = match non_null_field(body, "conversation") {
        None => return Ok(None),
        Some(Value::String(id)) => Some(id),
        Some(Value::Object(fields)) => match fields.get("id") {
            Some(Value::String(id)) => Some(id),
            _ => None,
        },
        Some(_) => None,
    };
    id.cloned().map(Some).ok_or_else(|| InvalidField::new("conversation", "expected an id, or an object with an id"))
}

/// A caller's own notes.
///
/// # Errors
/// When they are no object.
pub fn parse_metadata(body: &JsonObject) -> Result<JsonObject, InvalidField> {
    match non_null_field(body, "metadata") {
        None => Ok(JsonObject::new()),
        Some(Value::Object(metadata)) => Ok(metadata.clone()),
        Some(_) => Err(InvalidField::new("metadata", "expected an object")),
    }
}

fn non_null_field<'a>(body: &'a JsonObject, name: &str) -> Option<&'a Value> {
    body.get(name).filter(|value| !value.is_null())
}

fn optional_string(body: &JsonObject, name: &str) -> Result<Option<String>, InvalidField> {
    let expected = || InvalidField::new(name, "expected a text");
    non_null_field(body, name).map(|value| value.as_str().map(str::to_owned).ok_or_else(expected)).transpose()
}

fn optional_bool(body: &JsonObject, name: &str) -> Result<Option<bool>, InvalidField> {
    non_null_field(body, name)
        .map(|value| value.as_bool().ok_or_else(|| InvalidField::new(name, "expected true or false")))
        .transpose()
}

fn optional_positive(body: &JsonObject, name: &str) -> Result<Option<u64>, InvalidField> {
    let expected = || InvalidField::new(name, "expected a number from 1 on");
    non_null_field(body, name).map(|value| value.as_u64().filter(|number| *number > 0).ok_or_else(expected)).transpose()
}

fn optional_number(body: &JsonObject, name: &str, max: f64) -> Result<Option<f64>, InvalidField> {
    let expected = || InvalidField::new(name, format!("expected a number from 0 to {max}"));
    let fits = |value: &Value| value.as_f64().filter(|number| (0.0..=max).contains(number));
    non_null_field(body, name).map(|value| fits(value).ok_or_else(expected)).transpose()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
