//! Finds the authorization server of an MCP server: the metadata of a protected resource (RFC 9728), then those of its
//! authorization server (RFC 8414, or OpenID Connect Discovery).
//!
//! Servers of 2025-03-26 have no metadata of a resource, and are their own authorization server.

use super::challenge::BearerChallenge;
use super::error::AuthorizationError;
use super::guarded_http::GuardedHttp;
use super::url_text;
use serde::{Deserialize, Serialize};
use url::Url;

const RESOURCE_METADATA: &str = "the metadata of the MCP server";
const SERVER_METADATA: &str = "the metadata of the authorization server";
const RESOURCE_PATH: &str = "/.well-known/oauth-protected-resource";
const OAUTH_PATH: &str = "/.well-known/oauth-authorization-server";
const OIDC_PATH: &str = "/.well-known/openid-configuration";
const SCOPES_MAX: usize = 64;
const SCOPE_BYTES_MAX: usize = 256;

/// An authorization server, as far as a client must know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    #[serde(with = "url_text")]
    pub(super) authorization_endpoint: Url,
    #[serde(with = "url_text")]
    pub(super) token_endpoint: Url,
    /// Not stored: it is needed only until there is a client.
    #[serde(skip)]
    pub(super) registration_endpoint: Option<Url>,
    /// How clients may authenticate; `None` is as the standard has it.
    pub(super) auth_methods: Option<Vec<String>>,
    /// Its answers name the issuer (RFC 9207).
    pub(super) names_issuer: bool,
    /// A client may be known by the URL of a document that describes it.
    pub(super) accepts_client_documents: bool,
    pub(super) offers_offline_access: bool,
    /// What tokens are asked for: the MCP server.
    pub(super) resource: String,
    /// The scopes that the MCP server wants.
    pub(super) scopes: Vec<String>,
}

#[derive(Deserialize)]
struct ResourceMetadata {
    resource: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct ServerMetadata {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
}

/// Asks the MCP server how it refuses, and follows what it says.
pub(super) async fn discover(http: &GuardedHttp, server: &Url) -> Result<AuthorizationServer, AuthorizationError> {
    let challenge = BearerChallenge::find(&http.probe(server).await?);
    let resource = find_resource_metadata(http, server, &challenge).await?;
    let wanted_scopes = challenge.scope.as_deref().map(split_scopes);
    let Some(resource) = resource else {
        return discover_own_server(http, server, wanted_scopes.unwrap_or_default()).await;
    };
    let issuer = resource.authorization_servers.first().ok_or(AuthorizationError::NoServer)?;
    let issuer_url = http.parse_endpoint(issuer, "the issuer")?;
    let metadata = find_server_metadata(http, &issuer_url).await?.ok_or(AuthorizationError::NoServer)?;
    let identifier = resource.resource.unwrap_or_else(|| resource_identifier(server));
    let scopes = wanted_scopes.unwrap_or_else(|| clean_scopes(resource.scopes_supported));
    read_server(http, metadata, &issuer_url, identifier, scopes)
}

/// `None` if the server has no such document.
async fn find_resource_metadata(
    http: &GuardedHttp,
    server: &Url,
    challenge: &BearerChallenge,
) -> Result<Option<ResourceMetadata>, AuthorizationError> {
    if let Some(named) = &challenge.resource_metadata {
        let url = http.parse_endpoint(named, "the address of its metadata")?;
        let found = http.get_json::<ResourceMetadata>(&url, RESOURCE_METADATA).await?;
        let found = found.ok_or(AuthorizationError::Invalid(RESOURCE_METADATA))?;
        check_resource(server, &found)?;
        return Ok(Some(found));
    }
    for url in well_known_urls(server, &[RESOURCE_PATH]) {
        if let Some(found) = http.get_json::<ResourceMetadata>(&url, RESOURCE_METADATA).await?
            && !found.authorization_servers.is_empty()
        {
            check_resource(server, &found)?;
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A document about another server would have tokens for that one sent here, or the other way round.
fn check_resource(server: &Url, metadata: &ResourceMetadata) -> Result<(), AuthorizationError> {
    let Some(resource) = &metadata.resource else { return Ok(()) };
    let resource = Url::parse(resource).map_err(|_| AuthorizationError::Mismatch("resource"))?;
    let path = resource.path().trim_end_matches('/');
    let is_within = server.path().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if resource.origin() == server.origin() && is_within {
        Ok(())
    } else {
        Err(AuthorizationError::Mismatch("resource"))
    }
}

/// The server's own URL, as tokens name it.
fn resource_identifier(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    url.set_query(None);
    let text = url.to_string();
    if url.path() == "/" { text.trim_end_matches('/').to_owned() } else { text }
}

/// As in 2025-03-26: the authorization server is at the root of the MCP server, with metadata or without.
async fn discover_own_server(
    http: &GuardedHttp,
    server: &Url,
    scopes: Vec<String>,
) -> Result<AuthorizationServer, AuthorizationError> {
    let mut root = server.clone();
    root.set_path("/");
    root.set_query(None);
    root.set_fragment(None);
    let resource = resource_identifier(server);
    if let Some(metadata) = find_server_metadata(http, &root).await? {
        return read_server(http, metadata, &root, resource, scopes);
    }
    let endpoint = |path: &str| root.join(path).map_err(|_| AuthorizationError::NoServer);
    Ok(AuthorizationServer {
        issuer: root.to_string().trim_end_matches('/').to_owned(),
        authorization_endpoint: endpoint("/authorize")?,
        token_endpoint: endpoint("/token")?,
        registration_endpoint: Some(endpoint("/register")?),
        auth_methods: None,
        names_issuer: false,
        accepts_client_documents: false,
        offers_offline_access: false,
        resource,
        scopes,
    })
}

async fn find_server_metadata(http: &GuardedHttp, issuer: &Url) -> Result<Option<ServerMetadata>, AuthorizationError> {
    let mut urls = well_known_urls(issuer, &[OAUTH_PATH, OIDC_PATH]);
    let path = issuer.path().trim_matches('/');
    if !path.is_empty() {
        // Of an issuer with a path, the root is another issuer; OpenID Connect appends where OAuth inserts.
        urls.retain(|url| url.path() != OAUTH_PATH && url.path() != OIDC_PATH);
        urls.extend(issuer.join(&format!("/{path}{OIDC_PATH}")));
    }
    for url in urls {
        if let Some(found) = http.get_json(&url, SERVER_METADATA).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// For each document: inserted before the path, then at the root.
fn well_known_urls(base: &Url, documents: &[&str]) -> Vec<Url> {
    let path = base.path().trim_end_matches('/');
    let inserted = documents.iter().map(|document| format!("{document}{path}"));
    let at_root = documents.iter().filter(|_| !path.is_empty()).map(|document| (*document).to_owned());
    let paths: Vec<String> = inserted.chain(at_root).collect();
    paths.iter().filter_map(|path| base.join(path).ok()).collect()
}

fn read_server(
    http: &GuardedHttp,
    metadata: ServerMetadata,
    issuer: &Url,
    resource: String,
    scopes: Vec<String>,
) -> Result<AuthorizationServer, AuthorizationError> {
    if metadata.issuer.trim_end_matches('/') != issuer.as_str().trim_end_matches('/') {
        return Err(AuthorizationError::Mismatch("issuer"));
    }
    let methods = metadata.code_challenge_methods_supported.unwrap_or_default();
    if !methods.iter().any(|method| method == "S256") {
        return Err(AuthorizationError::NoPkce);
    }
    let required = |url: Option<String>, what| {
        http.parse_endpoint(url.as_deref().ok_or(AuthorizationError::Invalid(SERVER_METADATA))?, what)
    };
    let registration = metadata.registration_endpoint;
    Ok(AuthorizationServer {
        issuer: metadata.issuer,
        authorization_endpoint: required(metadata.authorization_endpoint, "the authorization endpoint")?,
        token_endpoint: required(metadata.token_endpoint, "the token endpoint")?,
        registration_endpoint: registration
            .map(|url| http.parse_endpoint(&url, "the registration endpoint"))
            .transpose()?,
        auth_methods: metadata.token_endpoint_auth_methods_supported,
        names_issuer: metadata.authorization_response_iss_parameter_supported,
        accepts_client_documents: metadata.client_id_metadata_document_supported,
        offers_offline_access: metadata.scopes_supported.iter().any(|scope| scope == "offline_access"),
        resource,
        scopes,
    })
}

/// The scopes of a text, as far as they are valid.
pub(super) fn split_scopes(text: &str) -> Vec<String> {
    clean_scopes(text.split(' ').map(str::to_owned).collect())
}

fn clean_scopes(scopes: Vec<String>) -> Vec<String> {
    let is_valid = |scope: &String| {
        let bytes = scope.as_bytes();
        (1..=SCOPE_BYTES_MAX).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
    };
    scopes.into_iter().filter(is_valid).take(SCOPES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(base: &str, documents: &[&str]) -> Vec<String> {
        well_known_urls(&Url::parse(base).unwrap(), documents).into_iter().map(String::from).collect()
    }

    #[test]
    fn documents_are_looked_for_before_the_path_and_at_the_root() {
        assert_eq!(
            urls("https://a.example/mcp/x?y=1", &["/.well-known/d"]),
            ["https://a.example/.well-known/d/mcp/x", "https://a.example/.well-known/d"]
        );
        assert_eq!(urls("https://a.example", &["/.well-known/d"]), ["https://a.example/.well-known/d"]);
        assert_eq!(urls("https://a.example/", &["/.well-known/d"]), ["https://a.example/.well-known/d"]);
    }

    #[test]
    fn metadata_of_another_resource_are_refused() {
        let server = Url::parse("https://a.example/team/mcp").unwrap();
        let check = |resource: Option<&str>| {
            let resource = resource.map(str::to_owned);
            let metadata = ResourceMetadata { resource, authorization_servers: vec![], scopes_supported: vec![] };
            check_resource(&server, &metadata).is_ok()
        };
        for fits in
            [None, Some("https://a.example/team/mcp"), Some("https://a.example/team"), Some("https://a.example")]
        {
            assert!(check(fits), "{fits:?}");
        }
        for other in ["https://b.example/team/mcp", "http://a.example/team/mcp", "https://a.example/te", "no", ""] {
            assert!(!check(Some(other)), "{other}");
        }
    }

    #[test]
    fn scopes_are_bounded_and_valid() {
        assert_eq!(split_scopes("a  b\u{7} c\"d files:read"), ["a", "files:read"]);
        assert_eq!(split_scopes(&"s ".repeat(1000)).len(), SCOPES_MAX);
        assert!(split_scopes(&"s".repeat(1000)).is_empty());
    }
}
