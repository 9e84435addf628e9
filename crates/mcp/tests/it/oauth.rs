//! Authorizations of users, against a real authorization server.

use crate::auth_server::{AuthServer, AuthServerOptions, MetadataForm};
use mcp::{
    AnswerSource, AuthorizationAnswer, AuthorizationError, AuthorizationParts, BearerToken, ClientAddresses,
    McpAuthorizations, SealingKey, TokenRefusal, TokenSource as _, TokenUser,
};
use memory_store::MemoryStore;
use model::UserId;
use model::definition::{McpAuth, OAuthClient};
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{Clock, UserSecrets as _};
use model::seq::Millis;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use url::Url;

const CALLBACK: &str = "http://127.0.0.1:1/v1/mcp/callback";
const MINUTE_MS: u64 = 60_000;

struct MovableClock(AtomicU64);

impl Clock for MovableClock {
    fn now(&self) -> Millis {
        self.0.load(Ordering::SeqCst)
    }
}

/// A server of users, whose time the test moves.
struct TestAuthorizations {
    store: Arc<MemoryStore>,
    clock: Arc<MovableClock>,
    authorizations: McpAuthorizations,
}

impl TestAuthorizations {
    fn new() -> Self {
        let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(MovableClock(AtomicU64::new(1_710_000_000_000))));
        let authorizations = open_node(&store, &clock);
        Self { store, clock, authorizations }
    }

    /// Another node with the same store.
    fn other_node(&self) -> McpAuthorizations {
        open_node(&self.store, &self.clock)
    }

    fn pass(&self, ms: u64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
    }

    async fn start(&self, user: &TokenUser) -> Result<String, AuthorizationError> {
        let started = self.authorizations.start(user, &addresses()).await?;
        Ok(started.authorization_url)
    }

    async fn finish(&self, location: &str) -> Result<(), AuthorizationError> {
        let source = AnswerSource::Browser { callback_url: CALLBACK };
        self.authorizations.finish(read_answer(location), source).await.map(drop)
    }

    /// From the wish to the token.
    async fn authorize(&self, server: &AuthServer, user: &TokenUser) {
        let url = self.start(user).await.unwrap();
        self.finish(&server.consent(&url).await).await.unwrap();
    }

    async fn token(&self, user: &TokenUser) -> Result<BearerToken, ErrorInfo> {
        self.authorizations.bearer_token(user).await.map(Option::unwrap)
    }

    /// As the transport: a request, and a second one if the first is refused.
    async fn call(&self, user: &TokenUser) -> Result<u16, ErrorInfo> {
        let token = self.token(user).await?;
        let (status, challenges) = ping(&user.url, &token).await;
        if status != 401 && status != 403 {
            return Ok(status);
        }
        let refusal = TokenRefusal { status, challenges, token: Some(token) };
        let token = self.authorizations.replace_token(user, refusal).await?;
        Ok(ping(&user.url, &token).await.0)
    }
}

fn open_node(store: &Arc<MemoryStore>, clock: &Arc<MovableClock>) -> McpAuthorizations {
    McpAuthorizations::new(AuthorizationParts {
        store: Arc::clone(store) as _,
        key: SealingKey::from_bytes(&[7; 32]),
        rules: fetch::UrlRules::default(),
        clock: Arc::clone(clock) as _,
        secrets: Arc::new(|reference| {
            Box::pin(async move {
                if reference == "env:SECRET" { Ok("own-secret-0".to_owned()) } else { Err(format!("no `{reference}`")) }
            })
        }),
    })
}

fn addresses() -> ClientAddresses {
    let document_url = Some("https://agents.example/v1/mcp/client.json".to_owned());
    ClientAddresses { callback_url: CALLBACK.to_owned(), document_url }
}

fn user_of(server: &AuthServer, name: &str, client: OAuthClient) -> TokenUser {
    TokenUser {
        user: UserId::from(name),
        label: "files".to_owned(),
        url: server.mcp_url(),
        auth: Arc::new(McpAuth::OAuth(client)),
    }
}

fn ann(server: &AuthServer) -> TokenUser {
    user_of(server, "ann", OAuthClient::default())
}

fn read_answer(location: &str) -> AuthorizationAnswer {
    let mut answer = AuthorizationAnswer::default();
    for (name, value) in Url::parse(location).unwrap().query_pairs().into_owned() {
        match name.as_str() {
            "state" => answer.state = value,
            "code" => answer.code = Some(value),
            "iss" => answer.iss = Some(value),
            "error" => answer.error = Some(value),
            _ => {}
        }
    }
    answer
}

async fn ping(url: &str, token: &BearerToken) -> (u16, Vec<String>) {
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
    let response = reqwest::Client::new().post(url).bearer_auth(token.as_str()).body(message).send().await.unwrap();
    let challenges = response.headers().get_all("www-authenticate").iter();
    let challenges = challenges.map(|value| value.to_str().unwrap().to_owned()).collect();
    (response.status().as_u16(), challenges)
}

#[track_caller]
fn assert_unauthorized(result: Result<impl std::fmt::Debug, ErrorInfo>, why: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpUnauthorized.as_str(), "{error:?}");
    assert!(error.message.contains(why) && error.message.contains("/v1/mcp/files/authorize"), "{error:?}");
    assert!(!error.message.contains("-secret-"), "{error:?}");
}

#[tokio::test]
async fn a_user_authorizes_a_server_in_every_form_of_its_metadata() {
    for form in [
        MetadataForm::OAuth,
        MetadataForm::OAuthPath,
        MetadataForm::OidcInserted,
        MetadataForm::OidcAppended,
        MetadataForm::OwnServer,
        MetadataForm::NoMetadata,
    ] {
        let names_issuer = form != MetadataForm::NoMetadata;
        let server =
            AuthServer::with_options(AuthServerOptions { form, names_issuer, ..AuthServerOptions::default() }).await;
        let (hw, ann) = (TestAuthorizations::new(), ann(&server));
        assert_unauthorized(hw.token(&ann).await, "has not been authorized");
        assert_eq!(server.state().requests.len(), 0, "{form:?}: nothing was asked");
        hw.authorize(&server, &ann).await;
        assert_eq!(hw.call(&ann).await, Ok(200), "{form:?}");
        let state = server.state();
        assert_eq!(state.authorization_fields["resource"], server.mcp_url(), "{form:?}");
        assert_eq!(state.authorization_fields["redirect_uri"], CALLBACK, "{form:?}");
        let wanted =
            if form == MetadataForm::OwnServer || !names_issuer { None } else { Some("files:read offline_access") };
        assert_eq!(state.authorization_fields.get("scope").map(String::as_str), wanted, "{form:?}");
    }
}

#[tokio::test]
async fn a_registration_is_made_once_and_says_what_this_server_is() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    hw.authorize(&server, &ann).await;
    hw.start(&ann).await.unwrap();
    assert_eq!(server.state().count("POST /register"), 1);
    let ben = TokenUser { user: UserId::from("ben"), ..ann };
    hw.authorize(&server, &ben).await;
    assert_eq!(server.state().count("POST /register"), 2, "users share no registration");
    let registered = server.state().registration.clone();
    assert_eq!(registered["redirect_uris"], serde_json::json!([CALLBACK]));
    assert_eq!(registered["grant_types"], serde_json::json!(["authorization_code", "refresh_token"]));
    assert_eq!(registered["application_type"], "native");
}

#[tokio::test]
async fn the_client_is_the_configured_one_or_a_document_or_registered() {
    for (method, secret) in
        [("client_secret_basic", Some("env:SECRET")), ("client_secret_post", Some("env:SECRET")), ("none", None)]
    {
        let options =
            AuthServerOptions { auth_methods: vec![method], registers: false, ..AuthServerOptions::default() };
        let server = AuthServer::with_options(options).await;
        server.state().add_client("our:client", secret.map(|_| "own-secret-0"), method);
        let client = OAuthClient {
            client_id: Some("our:client".to_owned()),
            client_secret: secret.map(str::to_owned),
            scopes: vec!["all".to_owned()],
            redirect_url: None,
        };
        let (hw, ann) = (TestAuthorizations::new(), user_of(&server, "ann", client));
        hw.authorize(&server, &ann).await;
        assert_eq!(hw.call(&ann).await, Ok(200), "{method}");
        assert_eq!(server.state().authorization_fields["scope"], "all offline_access");
    }
    let options = AuthServerOptions { accepts_client_documents: true, ..AuthServerOptions::default() };
    let server = AuthServer::with_options(options).await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    assert_eq!(server.state().authorization_fields["client_id"], addresses().document_url.unwrap());
    assert_eq!(server.state().count("POST /register"), 0);

    let server = AuthServer::with_options(AuthServerOptions { registers: false, ..AuthServerOptions::default() }).await;
    assert_eq!(hw.start(&self::ann(&server)).await.unwrap_err(), AuthorizationError::NoRegistration);
}

#[tokio::test]
async fn an_expired_token_is_refreshed_once_for_all_nodes() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    let first = hw.token(&ann).await.unwrap();
    hw.pass(59 * MINUTE_MS);
    assert_eq!(hw.token(&ann).await.unwrap(), first);
    hw.pass(MINUTE_MS);
    let other = hw.other_node();
    let here = (0..10).map(|_| hw.authorizations.bearer_token(&ann));
    let there = (0..10).map(|_| other.bearer_token(&ann));
    let tokens = futures_util::future::join_all(here.chain(there)).await;
    let second = tokens[0].clone().unwrap().unwrap();
    assert!(tokens.iter().all(|token| *token == Ok(Some(second.clone()))), "{tokens:?}");
    assert_ne!(second, first);
    assert_eq!(server.state().count("refresh_token"), 1);
    assert_eq!(server.state().token_fields["resource"], server.mcp_url());
    // The server has rotated the refresh token.
    hw.pass(60 * MINUTE_MS);
    assert_eq!(hw.call(&ann).await, Ok(200));
    assert_eq!(server.state().count("refresh_token"), 2);
}

#[tokio::test]
async fn a_token_that_the_server_refuses_is_refreshed_once() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    hw.pass(5 * MINUTE_MS);
    server.state().revoke_access_tokens();
    assert_eq!(hw.call(&ann).await, Ok(200));
    assert_eq!(server.state().count("refresh_token"), 1);
    // Somebody else used the old token while it was replaced.
    let late = TokenRefusal { status: 401, challenges: Vec::new(), token: BearerToken::new("old") };
    assert_eq!(hw.authorizations.replace_token(&ann, late).await, Ok(hw.token(&ann).await.unwrap()));
    assert_eq!(server.state().count("refresh_token"), 1);
}

#[tokio::test]
async fn a_server_that_refuses_every_token_costs_one_refresh_and_a_new_authorization() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    hw.pass(5 * MINUTE_MS);
    server.state().refuses_tokens = true;
    assert_eq!(hw.call(&ann).await, Ok(401), "the second request is the last");
    assert_unauthorized(hw.call(&ann).await, "refuses its authorization");
    let requests = server.state().requests.len();
    for _ in 0..10 {
        assert_unauthorized(hw.call(&ann).await, "refuses its authorization");
    }
    assert_eq!(server.state().requests.len(), requests, "nobody asks again");
    assert_eq!(server.state().count("refresh_token"), 1);
    assert_eq!(hw.authorizations.is_authorized(&ann).await, Ok(false));
    server.state().refuses_tokens = false;
    hw.authorize(&server, &ann).await;
    assert_eq!(hw.call(&ann).await, Ok(200));
}

#[tokio::test]
async fn a_refresh_that_is_refused_needs_a_new_authorization_and_one_that_fails_does_not() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    hw.pass(60 * MINUTE_MS);
    server.state().token_status = Some(503);
    let error = hw.token(&ann).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpUnavailable.as_str(), "{error:?}");
    server.state().token_status = None;
    assert_eq!(hw.call(&ann).await, Ok(200), "the refresh token is kept");

    hw.pass(60 * MINUTE_MS);
    server.state().refuses_refresh = true;
    assert_unauthorized(hw.token(&ann).await, "has expired");
    let requests = server.state().requests.len();
    assert_unauthorized(hw.token(&ann).await, "refuses its authorization");
    assert_eq!(server.state().requests.len(), requests);
}

#[tokio::test]
async fn a_token_without_a_refresh_token_works_until_it_expires() {
    let server = AuthServer::with_options(AuthServerOptions { refreshes: false, ..AuthServerOptions::default() }).await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    hw.pass(60 * MINUTE_MS - 1);
    assert_eq!(hw.call(&ann).await, Ok(200));
    assert_eq!(hw.authorizations.is_authorized(&ann).await, Ok(true));
    hw.pass(1);
    assert_unauthorized(hw.call(&ann).await, "has expired");
    assert_eq!(hw.authorizations.is_authorized(&ann).await, Ok(false));
}

#[tokio::test]
async fn missing_scopes_are_asked_for_with_the_next_authorization() {
    let options = AuthServerOptions { challenge_scope: Some("files:list"), ..AuthServerOptions::default() };
    let server = AuthServer::with_options(options).await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    assert_eq!(server.state().authorization_fields["scope"], "files:list offline_access");
    server.state().missing_scope = Some("files:write");
    assert_unauthorized(hw.call(&ann).await, "asks for more rights");
    assert_eq!(server.state().count("refresh_token"), 0, "a refresh does not help");
    server.state().missing_scope = None;
    assert_eq!(hw.call(&ann).await, Ok(200), "what needs no more rights still works");
    hw.authorize(&server, &ann).await;
    assert_eq!(server.state().authorization_fields["scope"], "files:list offline_access files:write");
}

#[tokio::test]
async fn an_answer_counts_once_for_its_user_and_its_issuer() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    let location = server.consent(&hw.start(&ann).await.unwrap()).await;
    let good = read_answer(&location);
    let unknown = AuthorizationAnswer { state: "x".repeat(43), ..good.clone() };
    let browser = AnswerSource::Browser { callback_url: CALLBACK };
    for state in [unknown.state.as_str(), "", &"y".repeat(100_000)] {
        let answer = AuthorizationAnswer { state: state.to_owned(), ..unknown.clone() };
        assert_eq!(hw.authorizations.finish(answer, browser).await, Err(AuthorizationError::UnknownState));
    }
    hw.finish(&location).await.unwrap();
    assert_eq!(hw.finish(&location).await, Err(AuthorizationError::UnknownState), "a second time");

    // Another user brings the answer, or it comes to another page than the one that it was meant for.
    let location = server.consent(&hw.start(&ann).await.unwrap()).await;
    let ben = UserId::from("ben");
    let stolen = hw.authorizations.finish(read_answer(&location), AnswerSource::User(&ben)).await;
    assert_eq!(stolen, Err(AuthorizationError::UnknownState));
    let page = OAuthClient { redirect_url: Some("https://app.example/done".to_owned()), ..OAuthClient::default() };
    let with_page = user_of(&server, "ann", page);
    let location = server.consent(&hw.start(&with_page).await.unwrap()).await;
    assert!(location.starts_with("https://app.example/done?"), "{location}");
    assert_eq!(hw.finish(&location).await, Err(AuthorizationError::UnknownState));
    let location = server.consent(&hw.start(&with_page).await.unwrap()).await;
    let brought = hw.authorizations.finish(read_answer(&location), AnswerSource::User(&ann.user)).await.unwrap();
    assert_eq!((brought.user, brought.label.as_str()), (ann.user.clone(), "files"));

    for iss in [None, Some("https://evil.example".to_owned()), Some(format!("{}/", server.issuer()))] {
        let answer = AuthorizationAnswer { iss, ..read_answer(&server.consent(&hw.start(&ann).await.unwrap()).await) };
        let before = server.state().count("authorization_code");
        assert_eq!(hw.authorizations.finish(answer, browser).await, Err(AuthorizationError::WrongIssuer));
        assert_eq!(server.state().count("authorization_code"), before, "the code goes nowhere");
    }
    let mut late = hw.start(&ann).await.unwrap();
    late = server.consent(&late).await;
    hw.pass(10 * MINUTE_MS);
    assert_eq!(hw.finish(&late).await, Err(AuthorizationError::UnknownState), "too late");
}

#[tokio::test]
async fn a_refusal_shows_its_code_and_nothing_else() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    let browser = AnswerSource::Browser { callback_url: CALLBACK };
    for (sent, shown) in [("access_denied", "access_denied"), ("<b>at-secret-1</b>", "error")] {
        let answer = read_answer(&server.consent(&hw.start(&ann).await.unwrap()).await);
        let answer = AuthorizationAnswer { error: Some(sent.to_owned()), ..answer };
        let refused = hw.authorizations.finish(answer, browser).await;
        assert_eq!(refused, Err(AuthorizationError::Refused(shown.to_owned())));
    }
    // A code of somebody else: the server checks the verifier.
    let theirs = read_answer(&server.consent(&hw.start(&ann).await.unwrap()).await);
    let ours = read_answer(&server.consent(&hw.start(&ann).await.unwrap()).await);
    let mixed = AuthorizationAnswer { code: theirs.code, ..ours };
    let refused = hw.authorizations.finish(mixed, browser).await.unwrap_err();
    assert_eq!(refused, AuthorizationError::Refused("invalid_grant".to_owned()));
    let shown = format!("{refused} {refused:?} {:?}", refused.describe("files"));
    assert!(!shown.contains("-secret-") && !shown.contains("description"), "{shown}");
}

#[tokio::test]
async fn hostile_metadata_lead_nowhere() {
    let base = AuthServerOptions::default;
    let link_local = || Some("http://169.254.169.254/latest/meta-data/".to_owned());
    let not_allowed = AuthorizationError::NotAllowed;
    let cases = [
        (
            AuthServerOptions { resource_metadata: link_local(), ..base() },
            not_allowed("the metadata of the MCP server"),
        ),
        (
            AuthServerOptions { authorization_server: link_local(), ..base() },
            not_allowed("the metadata of the authorization server"),
        ),
        (AuthServerOptions { registration_endpoint: link_local(), ..base() }, not_allowed("the registration endpoint")),
        (
            AuthServerOptions { resource_metadata: Some("file:///etc/passwd".to_owned()), ..base() },
            AuthorizationError::Invalid("the address of its metadata"),
        ),
        (
            AuthServerOptions { token_endpoint: Some("javascript:alert(1)".to_owned()), ..base() },
            AuthorizationError::Invalid("the token endpoint"),
        ),
        (
            AuthServerOptions { issuer: Some("https://other.example".to_owned()), ..base() },
            AuthorizationError::Mismatch("issuer"),
        ),
        (
            AuthServerOptions { resource: Some("https://other.example/mcp".to_owned()), ..base() },
            AuthorizationError::Mismatch("resource"),
        ),
        (AuthServerOptions { challenge_methods: vec!["plain"], ..base() }, AuthorizationError::NoPkce),
        (AuthServerOptions { challenge_methods: vec![], ..base() }, AuthorizationError::NoPkce),
        (AuthServerOptions { redirects: true, ..base() }, not_allowed("the metadata of the authorization server")),
        (
            AuthServerOptions { metadata_body: Some("x".repeat(10 * 1024 * 1024)), ..base() },
            AuthorizationError::Unreadable {
                what: "the metadata of the authorization server",
                error: fetch::FetchError::TooLarge,
            },
        ),
        (AuthServerOptions { metadata_body: Some("<html>".to_owned()), ..base() }, AuthorizationError::NoServer),
        (AuthServerOptions { metadata_body: Some("[".repeat(100_000)), ..base() }, AuthorizationError::NoServer),
    ];
    for (options, wanted) in cases {
        let server = AuthServer::with_options(options).await;
        let (hw, ann) = (TestAuthorizations::new(), ann(&server));
        assert_eq!(hw.start(&ann).await, Err(wanted));
        assert!(server.state().requests.len() < 10);
    }
    // The guard also stands before the exchange of the code.
    let server = AuthServer::with_options(AuthServerOptions { token_endpoint: link_local(), ..base() }).await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    let location = server.consent(&hw.start(&ann).await.unwrap()).await;
    assert_eq!(hw.finish(&location).await, Err(not_allowed("the token endpoint")));
}

#[tokio::test]
async fn tokens_are_sealed_belong_to_one_user_and_go_to_one_url() {
    let server = AuthServer::start().await;
    let (hw, ann) = (TestAuthorizations::new(), ann(&server));
    hw.authorize(&server, &ann).await;
    hw.start(&ann).await.unwrap();
    let stored = hw.store.secrets(&ann.user, hw.clock.now()).await.unwrap();
    assert_eq!(stored.len(), 3, "{stored:?}");
    for secret in &stored {
        let text = String::from_utf8_lossy(&secret.body);
        assert!(!text.contains("secret") && !text.contains("http"), "{text}");
    }
    let ben = TokenUser { user: UserId::from("ben"), ..ann.clone() };
    assert_unauthorized(hw.token(&ben).await, "has not been authorized");
    let moved = TokenUser { url: "https://elsewhere.example/mcp".to_owned(), ..ann.clone() };
    assert_unauthorized(hw.token(&moved).await, "has not been authorized");
    let other_label = TokenUser { label: "other".to_owned(), ..ann.clone() };
    assert!(hw.token(&other_label).await.is_err());

    assert_eq!(hw.authorizations.forget(&ann.user, "files").await, Ok(true));
    assert_eq!(hw.authorizations.forget(&ann.user, "files").await, Ok(false));
    assert_unauthorized(hw.token(&ann).await, "has not been authorized");
}

#[tokio::test]
async fn a_token_of_this_server_itself_is_asked_for_once() {
    let server = AuthServer::start().await;
    server.state().add_client("hw", Some("own-secret-0"), "client_secret_basic");
    let client = OAuthClient {
        client_id: Some("hw".to_owned()),
        client_secret: Some("env:SECRET".to_owned()),
        ..OAuthClient::default()
    };
    let hw = TestAuthorizations::new();
    let of = |name: &str| TokenUser {
        auth: Arc::new(McpAuth::ClientCredentials(client.clone())),
        ..user_of(&server, name, OAuthClient::default())
    };
    let (ann, ben) = (of("ann"), of("ben"));
    let tokens = futures_util::future::join_all((0..10).map(|_| hw.token(&ann))).await;
    assert!(tokens.iter().all(|token| *token == tokens[0] && token.is_ok()), "{tokens:?}");
    assert_eq!(hw.call(&ben).await, Ok(200));
    assert_eq!(server.state().count("client_credentials"), 1);
    hw.pass(5 * MINUTE_MS);
    server.state().revoke_access_tokens();
    assert_eq!(hw.call(&ben).await, Ok(200));
    assert_eq!(server.state().count("client_credentials"), 2);
    server.state().revoke_access_tokens();
    let error = hw.call(&ben).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::McpUnauthorized.as_str(), "{error:?}");
    assert!(error.message.contains("invalid_token"), "{error:?}");
    assert_eq!(server.state().count("client_credentials"), 2, "a new token that is refused is not replaced");
}
