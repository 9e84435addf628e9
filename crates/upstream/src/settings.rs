//! Model settings in a request: the one table of their field names, and what the dialects share in filling them in.
//!
//! Each dialect's `settings.rs` says which values it accepts. The operator's options are merged over the result.

use model::json::JsonObject;
use model::model_turn::ModelRequest;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireDialect {
    Responses,
    Messages,
    Chat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingField {
    MaxOutputTokens,
    /// OpenAI's newer Chat models refuse the older name of the same limit.
    MaxCompletionTokens,
    Temperature,
    TopP,
    Stop,
    ReasoningEffort,
    OutputFormat,
    ToolChoice,
    /// Messages has it inside `tool_choice`.
    ParallelToolCalls,
    ServiceTier,
    /// Responses has it in `include`.
    Logprobs,
    TopLogprobs,
}

impl SettingField {
    /// `None` where the dialect has no such field.
    pub(crate) const fn name(self, dialect: WireDialect) -> Option<&'static str> {
        let [responses, messages, chat] = match self {
            Self::MaxOutputTokens => [Some("max_output_tokens"), Some("max_tokens"), Some("max_tokens")],
            Self::MaxCompletionTokens => [None, None, Some("max_completion_tokens")],
            Self::Temperature => [Some("temperature"); 3],
            Self::TopP => [Some("top_p"); 3],
            Self::Stop => [None, Some("stop_sequences"), Some("stop")],
            Self::ReasoningEffort => [Some("reasoning"), None, Some("reasoning_effort")],
            Self::OutputFormat => [Some("text"), Some("output_config"), Some("response_format")],
            Self::ToolChoice => [Some("tool_choice"); 3],
            Self::ParallelToolCalls => [Some("parallel_tool_calls"), None, Some("parallel_tool_calls")],
            // The tiers of Messages have other names.
            Self::ServiceTier => [Some("service_tier"), None, Some("service_tier")],
            Self::Logprobs => [None, None, Some("logprobs")],
            Self::TopLogprobs => [Some("top_logprobs"), None, Some("top_logprobs")],
        };
        match dialect {
            WireDialect::Responses => responses,
            WireDialect::Messages => messages,
            WireDialect::Chat => chat,
        }
    }
}

/// Sets the fields that have a value and a name in the dialect.
pub(crate) fn insert_settings<const N: usize>(
    body: &mut JsonObject,
    dialect: WireDialect,
    settings: [(SettingField, Option<Value>); N],
) {
    for (field, value) in settings {
        if let (Some(name), Some(value)) = (field.name(dialect), value) {
            body.insert(name.to_owned(), value);
        }
    }
}

/// The agent's instructions, then the caller's.
pub(crate) fn combined_instructions(turn: &ModelRequest) -> String {
    let texts = [Some(turn.instructions.as_str()), turn.model_settings.instructions.as_deref()];
    let texts: Vec<&str> = texts.into_iter().flatten().filter(|text| !text.trim().is_empty()).collect();
    texts.join("\n\n")
}

/// Services refuse settings about tools in a request without tools.
pub(crate) fn has_tools(turn: &ModelRequest) -> bool {
    let provider_tools = turn.provider_options.get("tools").and_then(Value::as_array);
    !turn.tools.is_empty() || provider_tools.is_some_and(|tools| !tools.is_empty())
}

/// The name and the schema of a structured output, as OpenAI's dialects have them.
pub(crate) fn named_schema_json(name: &str, schema: &Value, strict: Option<bool>) -> JsonObject {
    let mut fields = JsonObject::new();
    fields.insert("name".to_owned(), name.into());
    fields.insert("schema".to_owned(), schema.clone());
    fields.extend(strict.map(|strict| ("strict".to_owned(), strict.into())));
    fields
}
