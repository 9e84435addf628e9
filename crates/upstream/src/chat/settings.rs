//! Model settings as this dialect's services accept them.

use crate::model_family::is_newer_openai_model;
use crate::settings::{SettingField, WireDialect, has_tools, insert_settings, named_schema_json};
use model::json::JsonObject;
use model::model_settings::{OutputFormat, ToolChoice};
use model::model_turn::ModelRequest;
use serde_json::{Value, json};

pub(super) fn apply_settings(body: &mut JsonObject, turn: &ModelRequest, model: &str) {
    let settings = &*turn.model_settings;
    let has_tools = has_tools(turn);
    let tool_choice = settings.tool_choice.as_ref().filter(|_| has_tools).map(tool_choice_json);
    let parallel_calls = settings.parallel_tool_calls.filter(|_| has_tools);
    // Under either of its names, the limit in the operator's options replaces the caller's.
    let is_limit_free = [SettingField::MaxOutputTokens, SettingField::MaxCompletionTokens]
        .into_iter()
        .filter_map(|field| field.name(WireDialect::Chat))
        .all(|name| !turn.provider_options.contains_key(name));
    let fields = [
        (token_limit_field(model), settings.max_output_tokens.filter(|_| is_limit_free).map(Value::from)),
        (SettingField::Temperature, settings.temperature.map(Value::from)),
        (SettingField::TopP, settings.top_p.map(Value::from)),
        (SettingField::Stop, Some(&settings.stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        (SettingField::ReasoningEffort, settings.effort.as_deref().map(Value::from)),
        (SettingField::OutputFormat, settings.format.as_ref().map(response_format_json)),
        (SettingField::ToolChoice, tool_choice),
        (SettingField::ParallelToolCalls, parallel_calls.map(Value::from)),
        (SettingField::ServiceTier, settings.service_tier.as_deref().map(Value::from)),
        (SettingField::Logprobs, settings.logprobs.map(|_| true.into())),
        (SettingField::TopLogprobs, settings.logprobs.and_then(|logprobs| logprobs.top).map(Value::from)),
    ];
    insert_settings(body, WireDialect::Chat, fields);
}

/// OpenAI's newer models refuse `max_tokens`; Mistral and many self-hosted servers refuse its successor.
fn token_limit_field(model: &str) -> SettingField {
    if is_newer_openai_model(model) { SettingField::MaxCompletionTokens } else { SettingField::MaxOutputTokens }
}

fn tool_choice_json(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool { name } => json!({ "type": "function", "function": { "name": name } }),
    }
}

fn response_format_json(format: &OutputFormat) -> Value {
    match format {
        OutputFormat::Json => json!({ "type": "json_object" }),
        OutputFormat::Schema { name, schema, strict } => {
            json!({ "type": "json_schema", "json_schema": named_schema_json(name, schema, *strict) })
        }
    }
}
