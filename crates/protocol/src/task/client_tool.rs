//! The tools of `POST /v1/tasks`: in the native shape, or as clients of OpenAI's APIs declare functions.

use crate::request_fields::any_object_schema;
use model::event::ClientTool;
use model::json::JsonObject;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;

/// A tool that the client runs.
#[derive(Debug)]
pub struct DeclaredClientTool(ClientTool);

/// A misspelt member is an error.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NativeTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

/// A tool of OpenAI's Responses. Other members, such as `strict`, have no effect.
#[derive(Deserialize, JsonSchema)]
struct FunctionTool {
    #[serde(rename = "type")]
    _kind: FunctionToolType,
    #[serde(flatten)]
    function: FunctionDeclaration,
}

/// A tool of OpenAI's Chat Completions.
#[derive(Deserialize, JsonSchema)]
struct ChatFunctionTool {
    #[serde(rename = "type")]
    _kind: FunctionToolType,
    function: FunctionDeclaration,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FunctionToolType {
    Function,
}

#[derive(Deserialize, JsonSchema)]
struct FunctionDeclaration {
    name: String,
    description: Option<String>,
    #[serde(default)]
    parameters: Value,
}

impl From<DeclaredClientTool> for ClientTool {
    fn from(DeclaredClientTool(tool): DeclaredClientTool) -> Self {
        tool
    }
}

impl From<NativeTool> for DeclaredClientTool {
    fn from(NativeTool { name, description, parameters }: NativeTool) -> Self {
        let parameters = if parameters.is_null() { any_object_schema() } else { parameters };
        Self(ClientTool { name, description, parameters })
    }
}

impl From<FunctionDeclaration> for DeclaredClientTool {
    fn from(FunctionDeclaration { name, description, parameters }: FunctionDeclaration) -> Self {
        NativeTool { name, description: description.unwrap_or_default(), parameters }.into()
    }
}

/// By hand: the shapes differ in which members they have, and each has errors of its own.
impl<'de> Deserialize<'de> for DeclaredClientTool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn parse<T: DeserializeOwned, E: Error>(members: JsonObject) -> Result<T, E> {
            serde_json::from_value(Value::Object(members)).map_err(E::custom)
        }
        let members = JsonObject::deserialize(deserializer)?;
        match (members.contains_key("type"), members.contains_key("function")) {
            (false, false) => parse::<NativeTool, _>(members).map(Self::from),
            (true, false) => parse::<FunctionTool, _>(members).map(|tool| tool.function.into()),
            (_, true) => parse::<ChatFunctionTool, _>(members).map(|tool| tool.function.into()),
        }
    }
}

impl JsonSchema for DeclaredClientTool {
    fn schema_name() -> Cow<'static, str> {
        "DeclaredClientTool".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let native = generator.subschema_for::<NativeTool>();
        let function = generator.subschema_for::<FunctionTool>();
        let chat = generator.subschema_for::<ChatFunctionTool>();
        json_schema!({ "description": "A tool that the client runs.", "anyOf": [native, function, chat] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(tool: &Value) -> Result<ClientTool, String> {
        DeclaredClientTool::deserialize(tool).map(Into::into).map_err(|error| error.to_string())
    }

    #[test]
    fn the_three_shapes_declare_the_same_tool() {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let native = json!({"name": "pick", "description": "Picks.", "parameters": parameters});
        let wanted = ClientTool { name: "pick".to_owned(), description: "Picks.".to_owned(), parameters };
        let mut function = native.clone();
        function["type"] = json!("function");
        function["strict"] = json!(true);
        let mut inner = native.clone();
        inner["strict"] = json!(null);
        let chat = json!({"type": "function", "function": inner});
        for shape in [&native, &function, &chat] {
            assert_eq!(parse(shape).unwrap(), wanted, "{shape}");
        }
        for bare in [
            json!({"name": "a"}),
            json!({"type": "function", "name": "a", "description": null, "parameters": null}),
            json!({"type": "function", "function": {"name": "a"}}),
        ] {
            assert_eq!(parse(&bare).unwrap().parameters, any_object_schema(), "{bare}");
        }
    }

    #[test]
    fn what_is_no_function_is_refused_with_the_reason() {
        for (shape, reason) in [
            (json!({"name": "a", "parametres": {}}), "unknown field `parametres`"),
            (json!({"type": "web_search"}), "unknown variant `web_search`, expected `function`"),
            (json!({"type": "function"}), "missing field `name`"),
            (json!({"function": {"name": "a"}}), "missing field `type`"),
            (json!({"type": "function", "function": {}}), "missing field `name`"),
            (json!("pick"), "expected a map"),
        ] {
            assert!(parse(&shape).unwrap_err().contains(reason), "{shape}: {:?}", parse(&shape));
        }
    }
}
