//! How this server proves to an MCP server with a URL who uses it.

use serde::{Deserialize, Serialize};

/// Whose credential the requests to a server carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum McpAuth {
    /// One that comes with the request of the user.
    User,
    /// A token of the user, who has authorized this server to act for them.
    #[serde(rename = "oauth")]
    OAuth(OAuthClient),
    /// A token of this server itself, the same for all users.
    ClientCredentials(OAuthClient),
}

/// What an authorization server knows this server as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuthClient {
    /// `None`: this server registers itself, or names the document that describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// A reference to the secret, never the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// Empty: those that the MCP server asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Where the authorization server sends the user afterwards, if not to this server: a page of an application, which
    /// passes the code on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_has_a_kind_and_what_was_set() {
        let forms = [
            (McpAuth::User, r#"{"kind":"user"}"#),
            (McpAuth::OAuth(OAuthClient::default()), r#"{"kind":"oauth"}"#),
            (
                McpAuth::ClientCredentials(OAuthClient {
                    client_id: Some("hw".to_owned()),
                    client_secret: Some("env:SECRET".to_owned()),
                    scopes: vec!["read".to_owned()],
                    redirect_url: None,
                }),
                r#"{"kind":"client_credentials","client_id":"hw","client_secret":"env:SECRET","scopes":["read"]}"#,
            ),
        ];
        for (auth, json) in forms {
            assert_eq!(serde_json::to_string(&auth).unwrap(), json);
            assert_eq!(serde_json::from_str::<McpAuth>(json).unwrap(), auth);
        }
    }
}
