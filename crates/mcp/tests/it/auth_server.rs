//! An authorization server and an MCP server behind it, on loopback: as the standards have them, and hostile.
//!
//! Everything secret that it issues contains `-secret-`, so that tests can look for it where it must not be.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::form_urlencoded;

/// Where the authorization server describes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MetadataForm {
    /// RFC 8414, of an issuer without a path.
    #[default]
    OAuth,
    /// RFC 8414, of an issuer with a path.
    OAuthPath,
    OidcInserted,
    OidcAppended,
    /// As in 2025-03-26: no metadata of a resource.
    OwnServer,
    /// As in 2025-03-26: no metadata at all.
    NoMetadata,
}

/// What is unusual about a server.
#[derive(Clone, Debug)]
pub(crate) struct AuthServerOptions {
    pub(crate) form: MetadataForm,
    /// Where the challenge says that the metadata of the resource are.
    pub(crate) resource_metadata: Option<String>,
    pub(crate) resource: Option<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) authorization_server: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) registration_endpoint: Option<String>,
    /// Sent instead of the metadata of the authorization server.
    pub(crate) metadata_body: Option<String>,
    /// The metadata are always elsewhere.
    pub(crate) redirects: bool,
    pub(crate) challenge_methods: Vec<&'static str>,
    pub(crate) auth_methods: Vec<&'static str>,
    pub(crate) registers: bool,
    pub(crate) accepts_client_documents: bool,
    pub(crate) names_issuer: bool,
    /// The `iss` of its answers.
    pub(crate) iss: Option<String>,
    pub(crate) expires_in: Option<u64>,
    pub(crate) refreshes: bool,
    pub(crate) challenge_scope: Option<&'static str>,
}

impl Default for AuthServerOptions {
    fn default() -> Self {
        Self {
            form: MetadataForm::OAuth,
            resource_metadata: None,
            resource: None,
            issuer: None,
            authorization_server: None,
            token_endpoint: None,
            registration_endpoint: None,
            metadata_body: None,
            redirects: false,
            challenge_methods: vec!["S256"],
            auth_methods: vec!["client_secret_basic", "client_secret_post", "none"],
            registers: true,
            accepts_client_documents: false,
            names_issuer: true,
            iss: None,
            expires_in: Some(3600),
            refreshes: true,
            challenge_scope: None,
        }
    }
}

/// What has happened, and what tests change while the server runs.
#[derive(Debug, Default)]
pub(crate) struct AuthServerState {
    /// Methods and paths, and the grant of requests for tokens.
    pub(crate) requests: Vec<String>,
    /// The fields of the last request for a token.
    pub(crate) token_fields: BTreeMap<String, String>,
    pub(crate) authorization_fields: BTreeMap<String, String>,
    pub(crate) registration: Value,
    /// The MCP server refuses every token.
    pub(crate) refuses_tokens: bool,
    /// The MCP server wants this scope besides.
    pub(crate) missing_scope: Option<&'static str>,
    pub(crate) refuses_refresh: bool,
    /// Requests for tokens fail with this status.
    pub(crate) token_status: Option<u16>,
    codes: BTreeMap<String, BTreeMap<String, String>>,
    access_tokens: BTreeSet<String>,
    refresh_tokens: BTreeSet<String>,
    /// Of clients that have one: secret and method.
    clients: BTreeMap<String, (Option<String>, String)>,
    issued: usize,
}

impl AuthServerState {
    pub(crate) fn count(&self, request: &str) -> usize {
        self.requests.iter().filter(|seen| seen.as_str() == request).count()
    }

    /// No token that was issued so far is valid any more, but each can be refreshed.
    pub(crate) fn revoke_access_tokens(&mut self) {
        self.access_tokens.clear();
    }

    pub(crate) fn add_client(&mut self, id: &str, secret: Option<&str>, method: &str) {
        self.clients.insert(id.to_owned(), (secret.map(str::to_owned), method.to_owned()));
    }

    fn next(&mut self, kind: &str) -> String {
        self.issued += 1;
        format!("{kind}-secret-{}", self.issued)
    }
}

pub(crate) struct AuthServer {
    pub(crate) url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    url: String,
    options: AuthServerOptions,
    state: Mutex<AuthServerState>,
}

impl Drop for AuthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AuthServer {
    pub(crate) async fn start() -> Self {
        Self::with_options(AuthServerOptions::default()).await
    }

    pub(crate) async fn with_options(options: AuthServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { url: url.clone(), options, state: Mutex::default() });
        let router = Router::new().fallback(respond).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared, task }
    }

    pub(crate) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.url)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, AuthServerState> {
        self.shared.state.lock().unwrap()
    }

    pub(crate) fn issuer(&self) -> String {
        self.shared.issuer()
    }

    /// The user consents: where the browser is sent.
    pub(crate) async fn consent(&self, authorization_url: &str) -> String {
        let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let response = browser.get(authorization_url).send().await.unwrap();
        assert_eq!(response.status(), 302, "{}", response.text().await.unwrap());
        response.headers()[header::LOCATION].to_str().unwrap().to_owned()
    }
}

async fn respond(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let path = parts.uri.path().to_owned();
    shared.state().requests.push(format!("{} {path}", parts.method));
    if path == "/mcp" {
        return shared.serve_mcp(&parts.method, &parts.headers, &body);
    }
    if path == shared.resource_metadata_path() && shared.has_resource_metadata() {
        return axum::Json(shared.resource_metadata()).into_response();
    }
    if path == shared.metadata_path() && shared.options.form != MetadataForm::NoMetadata {
        if shared.options.redirects {
            return (StatusCode::FOUND, [(header::LOCATION, path)]).into_response();
        }
        return match &shared.options.metadata_body {
            Some(body) => body.clone().into_response(),
            None => axum::Json(shared.metadata()).into_response(),
        };
    }
    match path.trim_start_matches("/tenant") {
        "/register" if shared.options.registers => shared.register(&body),
        "/authorize" => shared.authorize(parts.uri.query().unwrap_or_default()),
        "/token" => shared.issue_token(&parts.headers, &body),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, AuthServerState> {
        self.state.lock().unwrap()
    }

    fn base_path(&self) -> &'static str {
        match self.options.form {
            MetadataForm::OAuthPath | MetadataForm::OidcInserted | MetadataForm::OidcAppended => "/tenant",
            MetadataForm::OAuth | MetadataForm::OwnServer | MetadataForm::NoMetadata => "",
        }
    }

    fn issuer(&self) -> String {
        format!("{}{}", self.url, self.base_path())
    }

    fn metadata_path(&self) -> &'static str {
        match self.options.form {
            MetadataForm::OAuthPath => "/.well-known/oauth-authorization-server/tenant",
            MetadataForm::OidcInserted => "/.well-known/openid-configuration/tenant",
            MetadataForm::OidcAppended => "/tenant/.well-known/openid-configuration",
            MetadataForm::OAuth | MetadataForm::OwnServer | MetadataForm::NoMetadata => {
                "/.well-known/oauth-authorization-server"
            }
        }
    }

    fn has_resource_metadata(&self) -> bool {
        !matches!(self.options.form, MetadataForm::OwnServer | MetadataForm::NoMetadata)
    }

    /// In one form the challenge names it, in the others it is found.
    fn resource_metadata_path(&self) -> &'static str {
        match self.options.form {
            MetadataForm::OAuth => "/about/this/server",
            MetadataForm::OidcInserted => "/.well-known/oauth-protected-resource",
            _ => "/.well-known/oauth-protected-resource/mcp",
        }
    }

    fn resource_metadata(&self) -> Value {
        let (options, issuer) = (&self.options, self.issuer());
        json!({
            "resource": options.resource.clone().unwrap_or_else(|| format!("{}/mcp", self.url)),
            "authorization_servers": [options.authorization_server.clone().unwrap_or(issuer)],
            "scopes_supported": ["files:read"],
        })
    }

    fn metadata(&self) -> Value {
        let (options, issuer) = (&self.options, self.issuer());
        let endpoint = |named: &Option<String>, path: &str| named.clone().unwrap_or_else(|| format!("{issuer}{path}"));
        let mut metadata = json!({
            "issuer": options.issuer.clone().unwrap_or_else(|| issuer.clone()),
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": endpoint(&options.token_endpoint, "/token"),
            "code_challenge_methods_supported": options.challenge_methods,
            "token_endpoint_auth_methods_supported": options.auth_methods,
            "scopes_supported": ["files:read", "offline_access"],
            "authorization_response_iss_parameter_supported": options.names_issuer,
            "client_id_metadata_document_supported": options.accepts_client_documents,
        });
        if options.registers {
            metadata["registration_endpoint"] = endpoint(&options.registration_endpoint, "/register").into();
        }
        metadata
    }

    fn register(&self, body: &Bytes) -> Response {
        let wanted: Value = serde_json::from_slice(body).unwrap();
        let mut state = self.state();
        let (id, method) = (format!("client-{}", state.issued), wanted["token_endpoint_auth_method"].as_str().unwrap());
        let secret = (method != "none").then(|| state.next("cs"));
        state.clients.insert(id.clone(), (secret.clone(), method.to_owned()));
        state.registration = wanted.clone();
        let mut answer = json!({ "client_id": id, "token_endpoint_auth_method": method });
        if let Some(secret) = secret {
            answer["client_secret"] = secret.into();
            answer["client_secret_expires_at"] = 0.into();
        }
        (StatusCode::CREATED, axum::Json(answer)).into_response()
    }

    /// Everybody consents.
    fn authorize(&self, query: &str) -> Response {
        let fields: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        assert_eq!(fields["response_type"], "code");
        assert_eq!(fields["code_challenge_method"], "S256");
        let mut state = self.state();
        let code = state.next("code");
        let iss = self.options.iss.clone().or_else(|| self.options.names_issuer.then(|| self.issuer()));
        let mut location = url::Url::parse(&fields["redirect_uri"]).unwrap();
        location.query_pairs_mut().append_pair("code", &code).append_pair("state", &fields["state"]);
        if let Some(iss) = iss {
            location.query_pairs_mut().append_pair("iss", &iss);
        }
        state.authorization_fields.clone_from(&fields);
        state.codes.insert(code, fields);
        (StatusCode::FOUND, [(header::LOCATION, location.to_string())]).into_response()
    }

    fn issue_token(&self, headers: &HeaderMap, body: &Bytes) -> Response {
        let fields: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let mut state = self.state();
        let grant = fields["grant_type"].clone();
        state.requests.push(grant.clone());
        state.token_fields.clone_from(&fields);
        if let Some(status) = state.token_status {
            return StatusCode::from_u16(status).unwrap().into_response();
        }
        if !is_client_authentic(&state, headers, &fields) {
            return refusal(StatusCode::UNAUTHORIZED, "invalid_client");
        }
        let is_granted = match grant.as_str() {
            "authorization_code" => state.codes.remove(&fields["code"]).is_some_and(|asked| {
                let digest = Sha256::digest(fields["code_verifier"].as_bytes());
                asked["code_challenge"] == BASE64_URL_SAFE_NO_PAD.encode(digest)
                    && ["redirect_uri", "resource"].iter().all(|name| asked[*name] == fields[*name])
            }),
            "refresh_token" => !state.refuses_refresh && state.refresh_tokens.remove(&fields["refresh_token"]),
            "client_credentials" => true,
            _ => false,
        };
        if !is_granted {
            return refusal(StatusCode::BAD_REQUEST, "invalid_grant");
        }
        let access_token = state.next("at");
        state.access_tokens.insert(access_token.clone());
        let mut answer = json!({ "access_token": access_token, "token_type": "bearer" });
        if let Some(seconds) = self.options.expires_in {
            answer["expires_in"] = seconds.into();
        }
        if self.options.refreshes && grant != "client_credentials" {
            let refresh_token = state.next("rt");
            state.refresh_tokens.insert(refresh_token.clone());
            answer["refresh_token"] = refresh_token.into();
        }
        axum::Json(answer).into_response()
    }

    fn serve_mcp(&self, method: &Method, headers: &HeaderMap, body: &Bytes) -> Response {
        let state = self.state();
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if state.refuses_tokens || !state.access_tokens.contains(token) {
            return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, self.challenge())]).into_response();
        }
        if *method != Method::POST {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        let message: Value = serde_json::from_slice(body).unwrap();
        let called = message["method"].as_str().unwrap_or_default();
        if let Some(scope) = state.missing_scope
            && called == "tools/call"
        {
            let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
            return (StatusCode::FORBIDDEN, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
        }
        let result = match called {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "guarded", "version": "1" },
            }),
            "tools/list" => json!({ "tools": [{
                "name": "whoami", "description": "Says who asks.", "inputSchema": { "type": "object" },
            }] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": "somebody" }] }),
            _ if message.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
            _ => {
                let error = json!({ "code": -32601, "message": "unknown method" });
                return axum::Json(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })).into_response();
            }
        };
        axum::Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).into_response()
    }

    fn challenge(&self) -> String {
        let named = self.options.resource_metadata.clone();
        let named = named.or_else(|| {
            (self.options.form == MetadataForm::OAuth).then(|| format!("{}{}", self.url, self.resource_metadata_path()))
        });
        let mut challenge = "Bearer error=\"invalid_token\"".to_owned();
        if let Some(url) = named {
            challenge.push_str(&format!(", resource_metadata=\"{url}\""));
        }
        if let Some(scope) = self.options.challenge_scope {
            challenge.push_str(&format!(", scope=\"{scope}\""));
        }
        challenge
    }
}

/// As the client was registered: with a header, with fields, or not at all.
fn is_client_authentic(state: &AuthServerState, headers: &HeaderMap, fields: &BTreeMap<String, String>) -> bool {
    let basic = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let (id, secret, method) = match (basic, fields.get("client_secret")) {
        (Some(basic), None) => {
            let pair = String::from_utf8(BASE64_STANDARD.decode(basic).unwrap()).unwrap();
            let (id, secret) = pair.split_once(':').unwrap();
            let decode =
                |text: &str| form_urlencoded::parse(format!("x={text}").as_bytes()).next().unwrap().1.into_owned();
            (decode(id), Some(decode(secret)), "client_secret_basic")
        }
        (None, Some(secret)) => (fields["client_id"].clone(), Some(secret.clone()), "client_secret_post"),
        (None, None) => (fields.get("client_id").cloned().unwrap_or_default(), None, "none"),
        (Some(_), Some(_)) => return false,
    };
    let is_documented = id.starts_with("https://") && secret.is_none();
    is_documented || state.clients.get(&id).is_some_and(|known| *known == (secret, method.to_owned()))
}

fn refusal(status: StatusCode, error: &str) -> Response {
    // A description may repeat what was sent.
    let body = json!({ "error": error, "error_description": "refused: at-secret-0 rt-secret-0" });
    (status, axum::Json(body)).into_response()
}
