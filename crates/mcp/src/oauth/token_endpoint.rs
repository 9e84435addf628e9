//! Asks an authorization server for tokens.

use super::SecretLookup;
use super::error::AuthorizationError;
use super::guarded_http::GuardedHttp;
use super::registration::{ClientAuthMethod, ClientSecret, KnownClient};
use crate::token_source::BearerToken;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fetch::GuardedResponse;
use serde::{Deserialize, Deserializer};
use url::Url;
use url::form_urlencoded::byte_serialize;

const ENDPOINT: &str = "the token endpoint";
const ANSWER: &str = "the answer of the token endpoint";
const TOKEN_BYTES_MAX: usize = 32 * 1024;
const ERROR_CODE_BYTES_MAX: usize = 64;

/// An answer with a token. It has no `Debug`.
#[derive(Deserialize)]
pub(super) struct IssuedToken {
    pub(super) access_token: String,
    token_type: String,
    /// In seconds.
    #[serde(default, deserialize_with = "read_seconds")]
    pub(super) expires_in: Option<u64>,
    pub(super) refresh_token: Option<String>,
    pub(super) scope: Option<String>,
}

/// Some servers write the number as a text, or with a fraction; what cannot be read is as if it were not there.
fn read_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Number(number) => number.to_string(),
        serde_json::Value::String(text) => text,
        _ => return Ok(None),
    };
    Ok(text.split('.').next().and_then(|whole| whole.parse().ok()))
}

/// Where tokens are asked for, and as whom.
pub(super) struct TokenEndpoint<'a> {
    pub(super) http: &'a GuardedHttp,
    pub(super) url: &'a Url,
    pub(super) client: &'a KnownClient,
    pub(super) secrets: &'a SecretLookup,
}

impl TokenEndpoint<'_> {
    /// `fields` are those of the grant.
    pub(super) async fn request_token(&self, fields: &[(&str, &str)]) -> Result<IssuedToken, AuthorizationError> {
        let secret = self.resolve_secret().await?;
        let (client_id, secret) = (self.client.client_id.as_str(), secret.as_deref().unwrap_or_default());
        let mut fields = fields.to_vec();
        let mut authorization = None;
        match self.client.auth_method {
            ClientAuthMethod::None => fields.push(("client_id", client_id)),
            ClientAuthMethod::ClientSecretPost => {
                fields.extend([("client_id", client_id), ("client_secret", secret)]);
            }
            ClientAuthMethod::ClientSecretBasic => {
                let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encode(client_id), encode(secret));
                authorization = Some(format!("Basic {}", BASE64_STANDARD.encode(pair)));
            }
        }
        let response = self.http.post_form(self.url, &fields, authorization, ENDPOINT).await?;
        match response.status {
            200 => read_token(&response),
            429 => Err(AuthorizationError::ServerFailed(429)),
            status @ 500.. => Err(AuthorizationError::ServerFailed(status)),
            _ => Err(refusal(&response)),
        }
    }

    async fn resolve_secret(&self) -> Result<Option<String>, AuthorizationError> {
        match &self.client.secret {
            None => Ok(None),
            Some(ClientSecret::Issued(secret)) => Ok(Some(secret.clone())),
            Some(ClientSecret::Reference(reference)) => {
                let resolved = (self.secrets)(reference.clone()).await;
                resolved.map(Some).map_err(AuthorizationError::MissingSecret)
            }
        }
    }
}

fn read_token(response: &GuardedResponse) -> Result<IssuedToken, AuthorizationError> {
    let token: IssuedToken = serde_json::from_slice(&response.body).map_err(|_| AuthorizationError::Invalid(ANSWER))?;
    let is_valid = token.token_type.eq_ignore_ascii_case("bearer")
        && token.access_token.len() <= TOKEN_BYTES_MAX
        && BearerToken::new(&token.access_token).is_some()
        && token.refresh_token.as_deref().is_none_or(|text| (1..=TOKEN_BYTES_MAX).contains(&text.len()));
    if is_valid { Ok(token) } else { Err(AuthorizationError::Invalid(ANSWER)) }
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// The error code of a refusal. Its description may repeat what was sent, so it is not shown.
pub(super) fn refusal(response: &GuardedResponse) -> AuthorizationError {
    let refusal = serde_json::from_slice::<Refusal>(&response.body).ok();
    match refusal.and_then(|refusal| clean_error_code(&refusal.error)) {
        Some(code) => AuthorizationError::Refused(code),
        None => AuthorizationError::ServerFailed(response.status),
    }
}

/// `None` for a text that is no error code of OAuth.
pub(super) fn clean_error_code(text: &str) -> Option<String> {
    let is_code = (1..=ERROR_CODE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_code.then(|| text.to_owned())
}
