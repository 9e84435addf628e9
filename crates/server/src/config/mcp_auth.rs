//! `auth` of `[mcp.NAME]`: whose credential the requests to a server with a URL carry.

use super::secrets::{check_secrets, is_secret_ref};
use super::table::{ConfigTable, ConfigValue, quote_text};
use super::urls::check_http_url;
use model::definition::{McpAuth, OAuthClient};

const KEYS: [&str; 5] = ["kind", "client_id", "client_secret", "scopes", "redirect_url"];

#[derive(Clone, Copy)]
enum AuthKind {
    User,
    OAuth,
    ClientCredentials,
}

const KINDS: [(&str, AuthKind); 3] =
    [("user", AuthKind::User), ("oauth", AuthKind::OAuth), ("client_credentials", AuthKind::ClientCredentials)];

/// A kind alone, or a table with one.
pub(super) fn read_auth(item: &ConfigValue<'_>) -> Option<McpAuth> {
    if !item.is_table() {
        return match item.one_of(&KINDS)? {
            AuthKind::User => Some(McpAuth::User),
            AuthKind::OAuth => Some(McpAuth::OAuth(OAuthClient::default())),
            AuthKind::ClientCredentials => {
                item.report_error("write a table with `kind`, `client_id` and `client_secret`");
                None
            }
        };
    }
    let table = item.table(&KEYS)?;
    let Some(kind) = table.get("kind") else {
        table.report_error("the kind is missing; write `kind = \"oauth\"`");
        return None;
    };
    match kind.one_of(&KINDS)? {
        AuthKind::User => {
            report_surplus(&table, &["client_id", "client_secret", "scopes", "redirect_url"], "user");
            Some(McpAuth::User)
        }
        AuthKind::OAuth => read_client(&table).map(McpAuth::OAuth),
        AuthKind::ClientCredentials => {
            report_surplus(&table, &["redirect_url"], "client_credentials");
            if table.get("client_id").is_none() || table.get("client_secret").is_none() {
                table.report_error("`client_credentials` needs `client_id` and `client_secret`");
            }
            read_client(&table).map(McpAuth::ClientCredentials)
        }
    }
}

fn report_surplus(table: &ConfigTable<'_>, keys: &[&str], kind: &str) {
    for key in keys {
        if let Some(item) = table.get(key) {
            item.report_error(format!("has no meaning for `kind = \"{kind}\"`"));
        }
    }
}

fn read_client(table: &ConfigTable<'_>) -> Option<OAuthClient> {
    let client_id = table.get("client_id").and_then(|item| {
        let text = item.text()?;
        if text.is_empty() || text.chars().any(char::is_control) {
            item.report_error("not a client id; leave the key out to register at the authorization server");
        }
        Some(text.to_owned())
    });
    let client_secret = table.get("client_secret").and_then(|item| {
        let text = item.text()?;
        if !is_secret_ref(text) {
            item.report_error("do not write secrets into this file; use `env:NAME` or `file:PATH`");
            return None;
        }
        Some(check_secrets(&item, text))
    });
    if client_secret.is_some() && client_id.is_none() {
        table.report_error("a `client_secret` belongs to a `client_id`; write both, or neither");
    }
    let scopes = table.get("scopes").map(|item| read_scopes(&item)).unwrap_or_default();
    let redirect_url = table.get("redirect_url").and_then(|item| check_http_url(&item, item.text()?));
    Some(OAuthClient { client_id, client_secret, scopes, redirect_url })
}

fn read_scopes(item: &ConfigValue<'_>) -> Vec<String> {
    let scopes = item.text_list().unwrap_or_default();
    for (item, scope) in &scopes {
        let is_valid =
            !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
        if !is_valid {
            item.report_error(format!("{} is not a scope; a scope has no spaces and no quotes", quote_text(scope)));
        }
    }
    scopes.into_iter().map(|(_, scope)| scope.to_owned()).collect()
}
