//! Which users may call what: `[auth] models` and `callable` of agents.

use super::table::{ConfigTable, ConfigValue, quote_text};
use gateway::start_run::entry_agents;
use model::definition::{AllowedUsers, CallRules, Definitions};
use model::id::is_valid_user_name;

/// The rules of a server with keys. By default nobody may name a model of a provider, and everyone the agents that no
/// other agent calls or hands over to.
pub(super) fn read_call_rules(
    auth: &ConfigTable<'_>,
    agents: &ConfigTable<'_>,
    definitions: &Definitions,
) -> CallRules {
    let mut rules = CallRules {
        models: auth.get("models").and_then(|item| read_allowed_users(&item)).unwrap_or_default(),
        agents: entry_agents(definitions).iter().map(|name| ((*name).to_owned(), AllowedUsers::Everyone)).collect(),
    };
    // What is not a table was reported with the agent.
    for (name, item) in agents.items().filter(|(_, item)| item.is_table()) {
        let callable = item.free_table().and_then(|table| table.get("callable"));
        if let Some(allowed) = callable.and_then(|item| read_allowed_users(&item)) {
            rules.agents.insert(name.to_owned(), allowed);
        }
    }
    rules
}

/// `true` for everyone, `false` for nobody, or a list of users.
fn read_allowed_users(item: &ConfigValue<'_>) -> Option<AllowedUsers> {
    if !item.is_list() {
        return item.flag().map(|flag| if flag { AllowedUsers::Everyone } else { AllowedUsers::default() });
    }
    let users = item.text_list()?;
    for (item, user) in users.iter().filter(|(_, user)| !is_valid_user_name(user)) {
        item.report_error(format!("{} is not a user name; to allow everyone, write `true`", quote_text(user)));
    }
    Some(AllowedUsers::Only(users.into_iter().map(|(_, user)| user.to_owned()).collect()))
}
