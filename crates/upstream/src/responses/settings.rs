//! What the caller asks for, in the service's words. For words to stop at it has none.

use crate::settings::has_tools;
use model::json::JsonObject;
use model::model_settings::{OutputFormat, ToolChoice};
use model::model_turn::ModelRequest;
use serde_json::{Value, json};

/// Puts the wishes into the body.
pub(super) fn apply_settings(body: &mut JsonObject, turn: &ModelRequest) {
    let wishes = &*turn.model_settings;
    let effort = wishes.effort.as_deref().map(|effort| json!({ "effort": effort }));
    let text = wishes.format.as_ref().map(|format| json!({ "format": text_format_json(format) }));
    let choice = wishes.tool_choice.as_ref().map(tool_choice_json);
    let calls = has_tools(turn);
    for (name, wish) in [
        ("max_output_tokens", wishes.max_output_tokens.map(Value::from)),
        ("temperature", wishes.temperature.map(Value::from)),
        ("top_p", wishes.top_p.map(Value::from)),
        ("reasoning", effort),
        ("text", text),
        ("tool_choice", choice.filter(|_| calls)),
        ("parallel_tool_calls", wishes.parallel_tool_calls.filter(|_| calls).map(Value::from)),
    ] {
        body.extend(wish.map(|wish| (name.to_owned(), wish)));
    }
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
            let mut format = json!({ "type": "json_schema", "name": name, "schema": schema });
            if let (Some(strict), Some(fields)) = (strict, format.as_object_mut()) {
                fields.insert("strict".to_owned(), (*strict).into());
            }
            format
        }
    }
}
