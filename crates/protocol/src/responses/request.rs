//! Requests of the Responses protocol. Unknown fields are ignored, because SDKs send new ones all the time; known fields
//! have to have their type.

mod items;

use super::wire::{ECHOED_FIELDS, SERVER_LABEL, metadata_texts};
use crate::client_input::{ClientInput, InvalidField};
use crate::request_fields::{
    SamplingFields, any_object_schema, list_or_empty, non_null_field, optional_bool, optional_object, optional_str,
    optional_up_to, parse_tool_choice_mode,
};
use items::{parse_items, text_input};
use model::definition::mcp_tool_name;
use model::event::ClientTool;
use model::json::{ExactObject, JsonObject, to_exact_object};
use model::model_settings::{Logprobs, ModelSettings, OutputFormat, ToolChoice};
use serde_json::Value;
use std::fmt;

/// The value of `include` that asks for log probabilities.
const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";
const TOP_LOGPROBS_MAX: u64 = 20;

#[derive(Clone, Debug, PartialEq)]
pub struct ResponsesRequest {
    /// The agent, or `provider/model`.
    pub model: Option<String>,
    pub input: Vec<ClientInput>,
    pub stream: bool,
    /// Return at once; the client polls for the response.
    pub background: bool,
    /// Keep the response for later requests.
    pub store: bool,
    pub previous_response_id: Option<String>,
    pub conversation: Option<String>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    /// MCP servers of the config that the client names, most often to bring its user's credential.
    pub mcp_servers: Vec<RequestedMcpServer>,
    pub model_settings: ModelSettings,
    pub metadata: ExactObject,
    /// The fields that a response repeats.
    pub request_echo: JsonObject,
}

/// A tool of the type `mcp`.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestedMcpServer {
    /// Where in the request it is.
    pub field: String,
    pub label: String,
    pub url: Option<String>,
    /// A credential of the user.
    pub authorization: Option<String>,
}

impl fmt::Debug for RequestedMcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestedMcpServer").field("label", &self.label).finish_non_exhaustive()
    }
}

impl ResponsesRequest {
    /// The same request with its metadata as they were written: the body of `parse_responses_request` has numbers of 64 bits.
    #[must_use]
    pub fn with_metadata(mut self, metadata: ExactObject) -> Self {
        if let Some(echo) = self.request_echo.get_mut("metadata") {
            *echo = Value::Object(metadata_texts(&metadata));
        }
        Self { metadata, ..self }
    }
}

/// Parses the body of a request.
pub fn parse_responses_request(body: &JsonObject) -> Result<ResponsesRequest, InvalidField> {
    let request = ResponsesRequest {
        model: optional_str(body, "model", "")?.map(str::to_owned),
        input: parse_input(body)?,
        stream: optional_bool(body, "stream", "")?.unwrap_or(false),
        background: optional_bool(body, "background", "")?.unwrap_or(false),
        store: optional_bool(body, "store", "")?.unwrap_or(true),
        previous_response_id: optional_str(body, "previous_response_id", "")?.map(str::to_owned),
        conversation: parse_conversation_id(body)?,
        tools: parse_client_tools(body)?,
        mcp_servers: parse_mcp_servers(body)?,
        model_settings: parse_model_settings(body)?,
        metadata: to_exact_object(parse_metadata(body)?),
        request_echo: parse_request_echo(body),
    };
    if request.background && !request.store {
        return Err(InvalidField::new(
            "background",
            "a background response has to be stored: leave out `store: false`",
        ));
    }
    if request.previous_response_id.is_some() && request.conversation.is_some() {
        return Err(InvalidField::new("previous_response_id", "cannot be combined with `conversation`"));
    }
    Ok(request)
}

/// The fields that a response repeats. A request has few fields, so they are looked up among those, and not the reverse.
fn parse_request_echo(body: &JsonObject) -> JsonObject {
    let is_echoed =
        |(name, value): &(&String, &Value)| !value.is_null() && ECHOED_FIELDS.binary_search(&name.as_str()).is_ok();
    body.iter().filter(is_echoed).map(|(name, value)| (name.clone(), without_credentials(value))).collect()
}

/// Parses the items of a request that adds to a conversation.
pub fn parse_conversation_items(value: &Value) -> Result<Vec<ClientInput>, InvalidField> {
    match value {
        Value::Array(list) => parse_items("items", list),
        _ => Err(InvalidField::new("items", "expected a list of items")),
    }
}

pub(super) fn parse_input(body: &JsonObject) -> Result<Vec<ClientInput>, InvalidField> {
    match non_null_field(body, "input") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text_input(text).into_iter().collect()),
        Some(Value::Array(list)) => parse_items("input", list),
        Some(_) => Err(InvalidField::new("input", "expected a text or a list of items")),
    }
}

fn parse_model_settings(body: &JsonObject) -> Result<ModelSettings, InvalidField> {
    let instructions = optional_str(body, "instructions", "")?.filter(|text| !text.trim().is_empty());
    let effort = non_null_field(body, "reasoning").and_then(|reasoning| reasoning.get("effort"));
    Ok(ModelSettings {
        instructions: instructions.map(str::to_owned),
        tool_choice: parse_tool_choice(body)?,
        parallel_tool_calls: optional_bool(body, "parallel_tool_calls", "")?,
        effort: effort.and_then(Value::as_str).map(str::to_owned),
        format: parse_output_format(body)?,
        service_tier: optional_str(body, "service_tier", "")?.map(str::to_owned),
        logprobs: parse_logprobs(body)?,
        ..SamplingFields::RESPONSES.parse(body)?
    })
}

fn parse_logprobs(body: &JsonObject) -> Result<Option<Logprobs>, InvalidField> {
    let include = list_or_empty(body, "include", "")?.iter().any(|field| field == INCLUDE_LOGPROBS);
    let top = optional_up_to(body, "top_logprobs", TOP_LOGPROBS_MAX)?.filter(|top| *top > 0);
    Ok((include || top.is_some()).then_some(Logprobs { include, top }))
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
    let parse_mode = |mode: Option<&str>| {
        let expected = "expected `auto`, `none`, `required` or a tool";
        parse_tool_choice_mode(mode).map(Some).ok_or_else(|| InvalidField::new("tool_choice", expected))
    };
    let Value::Object(fields) = choice else { return parse_mode(choice.as_str()) };
    match fields.get("type").and_then(Value::as_str) {
        Some("function" | "custom") => {
            let name = fields.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| InvalidField::new("tool_choice.name", "expected the name of a tool"))?;
            Ok(Some(ToolChoice::Tool { name: name.to_owned() }))
        }
        Some("allowed_tools") => parse_mode(fields.get("mode").and_then(Value::as_str).or(Some("auto"))),
        // The server's own tools are always offered to the model.
        Some("mcp") => match fields.get("name").and_then(Value::as_str) {
            Some(name) => {
                let label = fields.get("server_label").and_then(Value::as_str);
                Ok(Some(ToolChoice::Tool { name: tool_name_for_model(label, name) }))
            }
            None => Ok(Some(ToolChoice::Required)),
        },
        Some(_) => Ok(None),
        None => parse_mode(None),
    }
}

/// A part of the request that is stored and shown, where credentials are not: they are members of `tools`.
fn without_credentials(field: &Value) -> Value {
    let mut field = field.clone();
    for tool in field.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if tool.get("type").and_then(Value::as_str) == Some("mcp") {
            tool.remove("authorization");
            tool.remove("headers");
        }
    }
    field
}

/// The MCP servers that the client names. They are those of the config: a client cannot add others.
fn parse_mcp_servers(body: &JsonObject) -> Result<Vec<RequestedMcpServer>, InvalidField> {
    let mut servers = Vec::new();
    for (index, tool) in list_or_empty(body, "tools", "")?.iter().enumerate() {
        let text = |name: &str| tool.get(name).and_then(Value::as_str);
        if text("type") != Some("mcp") || text("server_label") == Some(SERVER_LABEL) {
            continue;
        }
        let field = format!("tools[{index}].server_label");
        let Some(label) = text("server_label") else {
            return Err(InvalidField::new(field, "expected the name of an MCP server of the config"));
        };
        if tool.get("headers").is_some_and(|headers| !headers.is_null()) {
            let reason = "headers are those of the config: send the user's token as `authorization`";
            return Err(InvalidField::new(format!("tools[{index}].headers"), reason));
        }
        let (url, authorization) = (text("server_url").map(str::to_owned), text("authorization").map(str::to_owned));
        servers.push(RequestedMcpServer { field, label: label.to_owned(), url, authorization });
    }
    Ok(servers)
}

/// Parses the tools that the client runs. Hosted tools are ignored, because operators declare them in the config.
fn parse_client_tools(body: &JsonObject) -> Result<Vec<ClientTool>, InvalidField> {
    let allowed = allowed_tool_names(body);
    let mut tools = Vec::new();
    for (index, tool) in list_or_empty(body, "tools", "")?.iter().enumerate() {
        let field = |name: &str| tool.get(name).and_then(Value::as_str);
        match field("type") {
            Some("function") => {
                let name = field("name").filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| InvalidField::new(format!("tools[{index}].name"), "expected a name"))?;
                let parameters = tool.get("parameters").filter(|schema| !schema.is_null()).cloned();
                let parameters = parameters.unwrap_or_else(any_object_schema);
                let description = field("description").unwrap_or_default().to_owned();
                if allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|allowed| allowed == name)) {
                    tools.push(ClientTool { name: name.to_owned(), description, parameters });
                }
            }
            Some("custom") => {
                let reason = "custom tools are not supported: declare a function";
                return Err(InvalidField::new(format!("tools[{index}].type"), reason));
            }
            Some(_) => {}
            None => return Err(InvalidField::new(format!("tools[{index}].type"), "expected a type")),
        }
    }
    Ok(tools)
}

/// The name under which the model calls a tool that a client names with its server.
fn tool_name_for_model(server_label: Option<&str>, name: &str) -> String {
    match server_label {
        Some(label) if label != SERVER_LABEL => mcp_tool_name(label, name),
        _ => name.to_owned(),
    }
}

/// The names of a `tool_choice` of the type `allowed_tools`.
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

/// Parses the metadata of a request.
fn parse_metadata(body: &JsonObject) -> Result<JsonObject, InvalidField> {
    Ok(optional_object(body, "metadata", "")?.cloned().unwrap_or_default())
}

/// Checks the metadata of a body whose caller keeps it in exact form.
pub fn check_metadata(body: &JsonObject) -> Result<(), InvalidField> {
    optional_object(body, "metadata", "").map(drop)
}

#[cfg(test)]
mod tests;
