//! Model settings as this dialect accepts them.
//!
//! Callers do not know which provider answers, so a value that this one would refuse is omitted or adapted: temperatures
//! go up to 1; `temperature` excludes `top_p`; thinking excludes both, and a forced tool call. The reasoning effort is the
//! operator's to set here (`thinking`), because it comes with a token budget.

use super::thinking::{self, ThinkingMode};
use crate::settings::{SettingField, WireDialect, has_tools, insert_settings};
use model::json::JsonObject;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use model::model_turn::ModelRequest;
use serde_json::{Value, json};

const TEMPERATURE_MAX: f64 = 1.0;

/// Sets everything but the output limit, which is required and so has a default.
pub(super) fn apply_settings(body: &mut JsonObject, turn: &ModelRequest, thinking: ThinkingMode) {
    let settings = &*turn.model_settings;
    let thinks = thinking == ThinkingMode::AsConfigured && thinking::is_thinking_enabled(&turn.provider_options);
    let temperature = settings.temperature.map(|temperature| temperature.min(TEMPERATURE_MAX));
    let top_p = settings.top_p.filter(|_| temperature.is_none());
    let stop: Vec<&String> = settings.stop.iter().filter(|text| !text.trim().is_empty()).collect();
    let fields = [
        (SettingField::Temperature, temperature.filter(|_| !thinks).map(Value::from)),
        (SettingField::TopP, top_p.filter(|_| !thinks).map(Value::from)),
        (SettingField::Stop, Some(stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        (SettingField::ToolChoice, tool_choice_json(settings, thinks).filter(|_| has_tools(turn))),
        (SettingField::OutputFormat, settings.format.as_ref().and_then(output_config_json)),
    ];
    insert_settings(body, WireDialect::Messages, fields);
}

/// Sequential calls are a member of the tool choice.
fn tool_choice_json(settings: &ModelSettings, thinks: bool) -> Option<Value> {
    let is_sequential = settings.parallel_tool_calls == Some(false);
    let is_forced = matches!(settings.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool { .. }));
    let mut choice = match settings.tool_choice.as_ref().filter(|_| !(is_forced && thinks)) {
        None if !is_sequential => return None,
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        None | Some(ToolChoice::Auto) => json!({"type": "auto"}),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::Tool { name }) => json!({"type": "tool", "name": name}),
    };
    if let Some(fields) = choice.as_object_mut().filter(|_| is_sequential) {
        fields.insert("disable_parallel_tool_use".to_owned(), true.into());
    }
    Some(choice)
}

/// The provider enforces schemas strictly and refuses those that it cannot enforce, so a schema that need not be strict is
/// omitted. It has no mode for JSON without a schema.
fn output_config_json(format: &OutputFormat) -> Option<Value> {
    match format {
        OutputFormat::Json | OutputFormat::Schema { strict: Some(false), .. } => None,
        OutputFormat::Schema { schema, .. } => Some(json!({"format": {"type": "json_schema", "schema": schema}})),
    }
}
