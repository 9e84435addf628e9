//! What the caller asks for, in the provider's words.
//!
//! Callers do not know who answers them, so what this provider would refuse is left out or made to fit: it knows
//! temperatures up to 1, wants one of `temperature` and `top_p`, takes neither while a model thinks, and then lets no call
//! be forced either. How hard a model thinks is an operator's to say here (`thinking`): it comes with a budget.

use super::thinking::{self, ThinkingMode};
use crate::settings::has_tools;
use model::json::JsonObject;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use model::model_turn::ModelRequest;
use serde_json::{Value, json};

/// The highest temperature.
const TEMPERATURE_MAX: f64 = 1.0;

/// Puts the wishes into the body, but for the length of the answer, which has a default.
pub(super) fn apply_settings(body: &mut JsonObject, turn: &ModelRequest, thinking: ThinkingMode) {
    let wishes = &*turn.model_settings;
    let thinks = thinking == ThinkingMode::AsConfigured && thinking::is_thinking_enabled(&turn.provider_options);
    let temperature = wishes.temperature.map(|wish| wish.min(TEMPERATURE_MAX));
    let top_p = wishes.top_p.filter(|_| temperature.is_none());
    let stop: Vec<&String> = wishes.stop.iter().filter(|word| !word.trim().is_empty()).collect();
    let choice = tool_choice_json(wishes, thinks).filter(|_| has_tools(turn));
    for (name, wish) in [
        ("temperature", temperature.filter(|_| !thinks).map(Value::from)),
        ("top_p", top_p.filter(|_| !thinks).map(Value::from)),
        ("stop_sequences", Some(stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        ("tool_choice", choice),
        ("output_config", wishes.format.as_ref().and_then(output_config_json)),
    ] {
        body.extend(wish.map(|wish| (name.to_owned(), wish)));
    }
}

/// That calls come one by one is part of what may be called.
fn tool_choice_json(wishes: &ModelSettings, thinks: bool) -> Option<Value> {
    let one_by_one = wishes.parallel_tool_calls == Some(false);
    let forced = matches!(wishes.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool { .. }));
    let mut choice = match wishes.tool_choice.as_ref().filter(|_| !(forced && thinks)) {
        None if !one_by_one => return None,
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        None | Some(ToolChoice::Auto) => json!({"type": "auto"}),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::Tool { name }) => json!({"type": "tool", "name": name}),
    };
    if let Some(fields) = choice.as_object_mut().filter(|_| one_by_one) {
        fields.insert("disable_parallel_tool_use".to_owned(), true.into());
    }
    Some(choice)
}

/// The provider keeps a schema to the letter and refuses one that cannot be kept so: one that need not be is left out. It
/// has no word for any JSON.
fn output_config_json(format: &OutputFormat) -> Option<Value> {
    match format {
        OutputFormat::Json | OutputFormat::Schema { strict: Some(false), .. } => None,
        OutputFormat::Schema { schema, .. } => Some(json!({"format": {"type": "json_schema", "schema": schema}})),
    }
}
