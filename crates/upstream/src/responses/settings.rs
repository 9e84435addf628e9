//! Model settings as this dialect accepts them. It has no stop sequences.

use crate::settings::{SettingField, WireDialect, has_tools, insert_settings, named_schema_json};
use model::json::JsonObject;
use model::model_settings::{OutputFormat, ToolChoice};
use model::model_turn::ModelRequest;
use serde_json::{Value, json};

pub(super) fn apply_settings(body: &mut JsonObject, turn: &ModelRequest) {
    let settings = &*turn.model_settings;
    let has_tools = has_tools(turn);
    let effort = settings.effort.as_deref().map(|effort| json!({ "effort": effort }));
    let format = settings.format.as_ref().map(|format| json!({ "format": text_format_json(format) }));
    let tool_choice = settings.tool_choice.as_ref().filter(|_| has_tools).map(tool_choice_json);
    let parallel_calls = settings.parallel_tool_calls.filter(|_| has_tools);
    let fields = [
        (SettingField::MaxOutputTokens, settings.max_output_tokens.map(Value::from)),
        (SettingField::Temperature, settings.temperature.map(Value::from)),
        (SettingField::TopP, settings.top_p.map(Value::from)),
        (SettingField::ReasoningEffort, effort),
        (SettingField::OutputFormat, format),
        (SettingField::ToolChoice, tool_choice),
        (SettingField::ParallelToolCalls, parallel_calls.map(Value::from)),
        (SettingField::ServiceTier, settings.service_tier.as_deref().map(Value::from)),
        (SettingField::TopLogprobs, settings.logprobs.and_then(|logprobs| logprobs.top).map(Value::from)),
    ];
    insert_settings(body, WireDialect::Responses, fields);
}

fn tool_choice_json(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool { name } => json!({ "type": "function", "name": name }),
    }
}

fn text_format_json(format: &OutputFormat) -> Value {
    match format {
        OutputFormat::Json => json!({ "type": "json_object" }),
        OutputFormat::Schema { name, schema, strict } => {
            let mut format = JsonObject::new();
            format.insert("type".to_owned(), "json_schema".into());
            format.extend(named_schema_json(name, schema, *strict));
            Value::Object(format)
        }
    }
}
