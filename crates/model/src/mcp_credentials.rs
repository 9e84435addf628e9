//! Credentials that users bring for MCP servers.

use std::collections::BTreeMap;
use std::fmt;

/// The user's own credentials for MCP servers, by the server's name. They come with a request and are kept in memory for
/// its run alone: they cannot be serialised, and nothing prints them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct McpCredentials(BTreeMap<String, String>);

impl McpCredentials {
    /// Whether the server had none before.
    pub fn insert(&mut self, server: &str, token: &str) -> bool {
        self.0.insert(server.to_owned(), token.to_owned()).is_none()
    }

    #[must_use]
    pub fn get(&self, server: &str) -> Option<&str> {
        self.0.get(server).map(String::as_str)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for McpCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_not_printed() {
        let mut credentials = McpCredentials::default();
        assert!(credentials.insert("wiki", "s3cret") && !credentials.insert("wiki", "s3cret-2"));
        assert_eq!((format!("{credentials:?}"), credentials.get("wiki")), ("{\"wiki\"}".to_owned(), Some("s3cret-2")));
    }
}
