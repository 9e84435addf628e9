//! Which users may call which agents and models.

use super::Definitions;
use crate::id::UserId;
use std::collections::{BTreeMap, BTreeSet};

/// The rules of a server with access keys. An agent that calls another one or hands over to it needs no permission: the
/// operator has given it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRules {
    /// Who may name a bare `provider/model`.
    pub models: AllowedUsers,
    /// Who may name an agent. An agent that is missing here is for nobody.
    pub agents: BTreeMap<String, AllowedUsers>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedUsers {
    Everyone,
    /// Nobody, if it is empty.
    Only(BTreeSet<String>),
}

impl Default for AllowedUsers {
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl AllowedUsers {
    pub fn allows(&self, user: &UserId) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(users) => users.contains(user.as_str()),
        }
    }
}

impl Definitions {
    /// Whether the user may name this agent or model in a request.
    pub fn may_call(&self, user: &UserId, name: &str) -> bool {
        let Some(rules) = &self.call_rules else { return true };
        let allowed = if self.agents.contains_key(name) { rules.agents.get(name) } else { Some(&rules.models) };
        allowed.is_some_and(|allowed| allowed.allows(user))
    }

    /// The agents that the user may name in a request.
    pub fn callable_agents<'a>(&'a self, user: &'a UserId) -> impl Iterator<Item = &'a str> {
        self.agents.keys().map(String::as_str).filter(|name| self.may_call(user, name))
    }
}
