//! Names that tables define and refer to.

use super::providers::env_key_of_provider;
use super::suggest;
use super::table::{ConfigValue, quote_text};
use model::id::is_valid_id;

/// Hand-off tools are called this and the agent's name.
const HANDOFF_PREFIX: &str = "transfer_to_";

/// The names that the file defines, even if the definition has errors: those are reported once, and not again for each
/// reference.
pub(super) struct DefinedNames<'a> {
    pub(super) agents: Vec<&'a str>,
    pub(super) tools: Vec<&'a str>,
    pub(super) mcp: Vec<&'a str>,
    pub(super) providers: Vec<&'a str>,
}

/// Reports a name that agents, tools and providers cannot have.
pub(super) fn check_name(name: &str, item: &ConfigValue<'_>) {
    if !is_valid_id(name) {
        item.report_error("a name must have 1 to 64 letters, digits, `_` or `-`");
    }
    if name.starts_with(HANDOFF_PREFIX) {
        item.report_error(format!("the prefix `{HANDOFF_PREFIX}` is reserved for hand-offs; choose another name"));
    }
}

/// Reports a model whose provider is not defined.
pub(super) fn check_model_exists(item: &ConfigValue<'_>, model: &str, names: &DefinedNames<'_>) {
    match model.split_once('/') {
        Some((provider, rest)) if !rest.is_empty() => {
            // One missing provider is one finding, however many models it has.
            if !names.providers.contains(&provider) && item.findings().is_new_cause(&format!("provider {provider}")) {
                let instead = env_key_of_provider(provider).map_or_else(
                    || suggest::suggest_name(provider, &names.providers),
                    |key| format!("set {key} in the environment, or define [providers.{provider}]"),
                );
                item.report_error(format!("no provider for {}; {instead}", quote_text(model)));
            }
        }
        _ => item.report_error(format!(
            "no provider for {}; write provider/model; defined: {}",
            quote_text(model),
            suggest::list_names(&names.providers)
        )),
    }
}
