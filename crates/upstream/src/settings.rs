//! What the dialects share of a caller's wishes. Each puts them into its own words beside its `request`; what an operator
//! says is merged over them.

use model::model_turn::ModelRequest;
use serde_json::Value;

/// The agent's instructions, and after them the caller's.
pub(crate) fn combined_instructions(turn: &ModelRequest) -> String {
    let said = [Some(turn.instructions.as_str()), turn.model_settings.instructions.as_deref()];
    let said: Vec<&str> = said.into_iter().flatten().filter(|text| !text.trim().is_empty()).collect();
    said.join("\n\n")
}

/// Is there anything to call? Services refuse words about tools in a request that has none.
pub(crate) fn has_tools(turn: &ModelRequest) -> bool {
    let operators = turn.provider_options.get("tools").and_then(Value::as_array);
    !turn.tools.is_empty() || operators.is_some_and(|tools| !tools.is_empty())
}
