//! What the caller asks for, in the dialect's words.

use crate::model_family::is_newer_openai_model;
use crate::settings::has_tools;
use model::json::JsonObject;
use model::model_settings::{OutputFormat, ToolChoice};
use model::model_turn::ModelRequest;
use serde_json::{Value, json};

/// The two names of one limit.
const TOKEN_LIMIT_FIELDS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Puts the wishes into the body.
pub(super) fn apply_settings(body: &mut JsonObject, turn: &ModelRequest, model: &str) {
    let wishes = &*turn.model_settings;
    let choice = wishes.tool_choice.as_ref().map(tool_choice_json);
    let calls = has_tools(turn);
    // An operator who uses the other name has set this limit, too.
    let is_free = !TOKEN_LIMIT_FIELDS.iter().any(|name| turn.provider_options.contains_key(*name));
    for (name, wish) in [
        (token_limit_field(model), wishes.max_output_tokens.filter(|_| is_free).map(Value::from)),
        ("temperature", wishes.temperature.map(Value::from)),
        ("top_p", wishes.top_p.map(Value::from)),
        ("stop", Some(&wishes.stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        ("reasoning_effort", wishes.effort.as_deref().map(Value::from)),
        ("response_format", wishes.format.as_ref().map(response_format_json)),
        ("tool_choice", choice.filter(|_| calls)),
        ("parallel_tool_calls", wishes.parallel_tool_calls.filter(|_| calls).map(Value::from)),
    ] {
        body.extend(wish.map(|wish| (name.to_owned(), wish)));
    }
}

/// Everybody takes `max_tokens` but OpenAI's newer models, which refuse it; its successor is refused by Mistral and by
/// many a server of one's own.
fn token_limit_field(model: &str) -> &'static str {
    let [everybodys, openais] = TOKEN_LIMIT_FIELDS;
    if is_newer_openai_model(model) { openais } else { everybodys }
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
            let mut shape = json!({ "name": name, "schema": schema });
            if let (Some(strict), Some(fields)) = (strict, shape.as_object_mut()) {
                fields.insert("strict".to_owned(), (*strict).into());
            }
            json!({ "type": "json_schema", "json_schema": shape })
        }
    }
}
