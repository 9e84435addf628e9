//! What an authorization server knows this server as: the id of the config, the URL of a document, or a registration.

use super::discovery::AuthorizationServer;
use super::error::AuthorizationError;
use super::guarded_http::GuardedHttp;
use model::definition::OAuthClient;
use model::seq::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const CLIENT_NAME: &str = "Headwater";
const ANSWER: &str = "the registration of this client";
const ID_BYTES_MAX: usize = 2 * 1024;
const SECRET_BYTES_MAX: usize = 4 * 1024;
const SECOND_MS: u64 = 1000;

/// A client as its authorization server knows it. It has no `Debug`: it may hold a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownClient {
    pub(super) client_id: String,
    pub(super) secret: Option<ClientSecret>,
    pub(super) auth_method: ClientAuthMethod,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientSecret {
    /// A reference of the config, resolved at each use.
    Reference(String),
    /// What the authorization server has issued.
    Issued(String),
}

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientAuthMethod {
    None,
    ClientSecretBasic,
    ClientSecretPost,
}

impl ClientAuthMethod {
    const ALL: [Self; 3] = [Self::ClientSecretBasic, Self::ClientSecretPost, Self::None];

    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }

    /// The best of those that the server accepts, with a secret or without. Without a list it is the standard's default.
    fn choose(server: &AuthorizationServer, has_secret: bool) -> Self {
        let accepted = server.auth_methods.as_deref().unwrap_or_default();
        let found = Self::ALL.into_iter().find(|method| {
            (has_secret || *method == Self::None) && accepted.iter().any(|accepted| accepted == method.as_str())
        });
        found.unwrap_or(if has_secret { Self::ClientSecretBasic } else { Self::None })
    }
}

/// The client that the config names.
pub(super) fn configured_client(config: &OAuthClient, server: &AuthorizationServer) -> Option<KnownClient> {
    let secret = config.client_secret.clone().map(ClientSecret::Reference);
    Some(KnownClient {
        client_id: config.client_id.clone()?,
        auth_method: ClientAuthMethod::choose(server, secret.is_some()),
        secret,
    })
}

/// A client that is known by the URL of its document.
pub(super) fn documented_client(server: &AuthorizationServer, document_url: Option<&str>) -> Option<KnownClient> {
    let url = document_url.filter(|url| server.accepts_client_documents && url.starts_with("https://"))?;
    Some(KnownClient { client_id: url.to_owned(), secret: None, auth_method: ClientAuthMethod::None })
}

#[derive(Deserialize)]
struct Registration {
    client_id: String,
    client_secret: Option<String>,
    /// In seconds; zero is never.
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// Registers this server (RFC 7591). Returns the client, and when it is of no use any more.
pub(super) async fn register(
    http: &GuardedHttp,
    server: &AuthorizationServer,
    redirect_uri: &str,
) -> Result<(KnownClient, Option<Millis>), AuthorizationError> {
    let endpoint = server.registration_endpoint.as_ref().ok_or(AuthorizationError::NoRegistration)?;
    let wanted = ClientAuthMethod::choose(server, true);
    let body = client_metadata(&[redirect_uri.to_owned()], wanted.as_str());
    let response = http.post_json(endpoint, body, "the registration endpoint").await?;
    match response.status {
        200 | 201 => {}
        status @ 500.. => return Err(AuthorizationError::ServerFailed(status)),
        _ => return Err(super::token_endpoint::refusal(&response)),
    }
    let registered: Registration =
        serde_json::from_slice(&response.body).map_err(|_| AuthorizationError::Invalid(ANSWER))?;
    let Registration { client_id, client_secret, client_secret_expires_at, token_endpoint_auth_method } = registered;
    let is_valid = |text: &str, bytes_max| {
        (1..=bytes_max).contains(&text.len()) && text.chars().all(|letter| !letter.is_control())
    };
    let secret_is_valid = client_secret.as_deref().is_none_or(|secret| is_valid(secret, SECRET_BYTES_MAX));
    if !is_valid(&client_id, ID_BYTES_MAX) || !secret_is_valid {
        return Err(AuthorizationError::Invalid(ANSWER));
    }
    let named = token_endpoint_auth_method.as_deref().and_then(ClientAuthMethod::parse);
    let auth_method = match &client_secret {
        None => ClientAuthMethod::None,
        Some(_) => named.unwrap_or(wanted),
    };
    let expires_at = client_secret_expires_at.filter(|at| *at > 0).map(|at| at.saturating_mul(SECOND_MS));
    Ok((KnownClient { client_id, secret: client_secret.map(ClientSecret::Issued), auth_method }, expires_at))
}

/// What this server says about itself.
pub(super) fn client_metadata(redirect_uris: &[String], auth_method: &str) -> Map<String, Value> {
    let is_web = redirect_uris.iter().all(|uri| uri.starts_with("https://"));
    let members = [
        ("client_name", json!(CLIENT_NAME)),
        ("redirect_uris", json!(redirect_uris)),
        ("grant_types", json!(["authorization_code", "refresh_token"])),
        ("response_types", json!(["code"])),
        ("token_endpoint_auth_method", json!(auth_method)),
        ("application_type", json!(if is_web { "web" } else { "native" })),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
