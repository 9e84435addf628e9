//! What a client asks of us: the body of a request, in our words. Fields that we do not know are left alone, for SDKs send
//! new ones all the time; fields that we know have to be what they say.

use super::asked_items::{items, of_text};
use crate::said::{Said, Wrong};
use model::block::JsonObject;
use model::event::ClientTool;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use serde_json::{Value, json};

/// The label under which our own tools are known to clients that declare servers.
pub const SERVER_LABEL: &str = "headwater";

/// What a response shows back of its request, where that says anything.
pub(super) const SHOWN_BACK: [&str; 22] = [
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
pub struct Asked {
    /// The agent, or `provider/model`.
    pub model: Option<String>,
    /// What is said.
    pub said: Vec<Said>,
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
    pub wishes: ModelSettings,
    /// The caller's own notes.
    pub metadata: JsonObject,
    /// What a response shows back.
    pub echo: JsonObject,
}

/// Reads the body of a request.
///
/// # Errors
/// When a field is not what it has to be.
pub fn asked(body: &JsonObject) -> Result<Asked, Wrong> {
    let asked = Asked {
        model: text(body, "model")?,
        said: said(body)?,
        stream: flag(body, "stream")?.unwrap_or(false),
        background: flag(body, "background")?.unwrap_or(false),
        store: flag(body, "store")?.unwrap_or(true),
        previous_response_id: text(body, "previous_response_id")?,
        conversation: conversation(body)?,
        tools: tools(body)?,
        wishes: wishes(body)?,
        metadata: metadata(body)?,
        echo: SHOWN_BACK.iter().filter_map(|name| Some(((*name).to_owned(), given(body, name)?.clone()))).collect(),
    };
    if asked.background && !asked.store {
        return Err(Wrong::new("background", "what is not stored cannot be asked for later: leave out `store: false`"));
    }
    if asked.previous_response_id.is_some() && asked.conversation.is_some() {
        return Err(Wrong::new("previous_response_id", "it cannot be given together with `conversation`"));
    }
    Ok(asked)
}

/// Reads the items of a request that only adds to a conversation.
///
/// # Errors
/// When they are no items.
pub fn asked_said(value: &Value) -> Result<Vec<Said>, Wrong> {
    match value {
        Value::Array(list) => items("items", list),
        _ => Err(Wrong::new("items", "expected a list of items")),
    }
}

fn said(body: &JsonObject) -> Result<Vec<Said>, Wrong> {
    match given(body, "input") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(of_text(text).into_iter().collect()),
        Some(Value::Array(list)) => items("input", list),
        Some(_) => Err(Wrong::new("input", "expected a text or a list of items")),
    }
}

fn wishes(body: &JsonObject) -> Result<ModelSettings, Wrong> {
    let reasoning = given(body, "reasoning").cloned().unwrap_or_default();
    Ok(ModelSettings {
        instructions: text(body, "instructions")?.filter(|text| !text.trim().is_empty()),
        max_output_tokens: whole(body, "max_output_tokens")?,
        temperature: number(body, "temperature", 2.0)?,
        top_p: number(body, "top_p", 1.0)?,
        stop: Vec::new(),
        tool_choice: tool_choice(body)?,
        parallel_tool_calls: flag(body, "parallel_tool_calls")?,
        effort: reasoning.get("effort").and_then(Value::as_str).map(str::to_owned),
        format: format(body)?,
    })
}

fn format(body: &JsonObject) -> Result<Option<OutputFormat>, Wrong> {
    let Some(format) = given(body, "text").and_then(|text| text.get("format")).filter(|format| !format.is_null())
    else {
        return Ok(None);
    };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::Json)),
        Some("json_schema") => {
            let schema = format.get("schema").filter(|schema| schema.is_object()).cloned();
            let schema = schema.ok_or_else(|| Wrong::new("text.format.schema", "expected a JSON Schema"))?;
            let name = format.get("name").and_then(Value::as_str).unwrap_or("answer").to_owned();
            let strict = format.get("strict").and_then(Value::as_bool);
            Ok(Some(OutputFormat::Schema { name, schema, strict }))
        }
        _ => Err(Wrong::new("text.format.type", "expected `text`, `json_object` or `json_schema`")),
    }
}

fn tool_choice(body: &JsonObject) -> Result<Option<ToolChoice>, Wrong> {
    let Some(choice) = given(body, "tool_choice") else { return Ok(None) };
    let mode = |mode: Option<&str>| match mode {
        Some("auto") => Ok(Some(ToolChoice::Auto)),
        Some("none") => Ok(Some(ToolChoice::None)),
        Some("required") => Ok(Some(ToolChoice::Required)),
        _ => Err(Wrong::new("tool_choice", "expected `auto`, `none`, `required` or a tool")),
    };
    let Value::Object(fields) = choice else { return mode(choice.as_str()) };
    match fields.get("type").and_then(Value::as_str) {
        Some("function" | "custom") => {
            let name = fields.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| Wrong::new("tool_choice.name", "expected the name of a tool"))?;
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
fn tools(body: &JsonObject) -> Result<Vec<ClientTool>, Wrong> {
    let list = match given(body, "tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Wrong::new("tools", "expected a list")),
    };
    let allowed = allowed(body);
    let mut tools = Vec::new();
    for (place, tool) in list.iter().enumerate() {
        let field = |name: &str| tool.get(name).and_then(Value::as_str);
        match field("type") {
            Some("function") => {
                let named = field("name").filter(|name| !name.is_empty());
                let name = named.ok_or_else(|| Wrong::new(format!("tools[{place}].name"), "expected a name"))?;
                let parameters = tool.get("parameters").filter(|schema| !schema.is_null()).cloned();
                let parameters = parameters.unwrap_or_else(|| json!({ "type": "object" }));
                let description = field("description").unwrap_or_default().to_owned();
                if allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|allowed| allowed == name)) {
                    tools.push(ClientTool { name: name.to_owned(), description, parameters });
                }
            }
            Some("mcp") if field("server_label") != Some(SERVER_LABEL) => {
                let why = format!("only `{SERVER_LABEL}` can be named here: other servers are declared in the config");
                return Err(Wrong::new(format!("tools[{place}].server_label"), why));
            }
            Some("custom") => {
                let why = "tools of free text are not supported: declare a function";
                return Err(Wrong::new(format!("tools[{place}].type"), why));
            }
            Some(_) => {}
            None => return Err(Wrong::new(format!("tools[{place}].type"), "expected a type")),
        }
    }
    Ok(tools)
}

/// The names that a choice of several tools leaves.
fn allowed(body: &JsonObject) -> Option<Vec<String>> {
    let choice = given(body, "tool_choice")?;
    let tools = choice.get("tools").filter(|_| choice.get("type").and_then(Value::as_str) == Some("allowed_tools"))?;
    let name = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
    Some(tools.as_array()?.iter().filter_map(name).collect())
}

fn conversation(body: &JsonObject) -> Result<Option<String>, Wrong> {
    let id = match given(body, "conversation") {
        None => return Ok(None),
        Some(Value::String(id)) => Some(id),
        Some(Value::Object(fields)) => match fields.get("id") {
            Some(Value::String(id)) => Some(id),
            _ => None,
        },
        Some(_) => None,
    };
    id.cloned().map(Some).ok_or_else(|| Wrong::new("conversation", "expected an id, or an object with an id"))
}

/// A caller's own notes.
///
/// # Errors
/// When they are no object.
pub fn metadata(body: &JsonObject) -> Result<JsonObject, Wrong> {
    match given(body, "metadata") {
        None => Ok(JsonObject::new()),
        Some(Value::Object(metadata)) => Ok(metadata.clone()),
        Some(_) => Err(Wrong::new("metadata", "expected an object")),
    }
}

fn given<'a>(body: &'a JsonObject, name: &str) -> Option<&'a Value> {
    body.get(name).filter(|value| !value.is_null())
}

fn text(body: &JsonObject, name: &str) -> Result<Option<String>, Wrong> {
    let expected = || Wrong::new(name, "expected a text");
    given(body, name).map(|value| value.as_str().map(str::to_owned).ok_or_else(expected)).transpose()
}

fn flag(body: &JsonObject, name: &str) -> Result<Option<bool>, Wrong> {
    given(body, name).map(|value| value.as_bool().ok_or_else(|| Wrong::new(name, "expected true or false"))).transpose()
}

fn whole(body: &JsonObject, name: &str) -> Result<Option<u64>, Wrong> {
    let expected = || Wrong::new(name, "expected a number from 1 on");
    given(body, name).map(|value| value.as_u64().filter(|number| *number > 0).ok_or_else(expected)).transpose()
}

fn number(body: &JsonObject, name: &str, max: f64) -> Result<Option<f64>, Wrong> {
    let expected = || Wrong::new(name, format!("expected a number from 0 to {max}"));
    let fits = |value: &Value| value.as_f64().filter(|number| (0.0..=max).contains(number));
    given(body, name).map(|value| fits(value).ok_or_else(expected)).transpose()
}

#[cfg(test)]
#[path = "asked_tests.rs"]
mod tests;
