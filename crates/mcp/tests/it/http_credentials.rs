//! The user's own credential for a server: it comes with a request, opens a session of its own, and ends with the run.

use crate::fixtures::{SECRET, error, text};
use crate::http_server::HttpTest;
use model::definition::{McpAuth, McpServer, McpTransport};
use model::mcp_credentials::McpCredentials;
use model::ports::DefinitionResolver as _;
use serde_json::Value;
use std::sync::Arc;

const TOKEN: &str = "alices-own-token/1";

/// The next run of this test brings a token, or loses it.
fn bring(test: &mut HttpTest, token: Option<&str>) {
    test.servers.credentials = token.map(|_| "s".to_owned()).into_iter().collect();
    test.servers.tools.forget_credentials(&"task_R".into());
    if let Some(token) = token {
        let mut credentials = McpCredentials::default();
        credentials.insert("s", token);
        test.servers.tools.keep_credentials(&"task_R".into(), credentials);
    }
}

fn with_auth(mut server: McpServer, auth: McpAuth) -> McpServer {
    if let McpTransport::Endpoint(endpoint) = &mut server.program.transport {
        endpoint.auth = Some(Arc::new(auth));
        endpoint.headers.insert("Authorization".to_owned(), "Bearer {env:TOKEN}".to_owned());
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_replaces_the_operators_and_is_in_no_result() {
    let mut test = HttpTest::start("sessions");
    bring(&mut test, Some(TOKEN));
    let run = test.servers.resolve(with_auth(test.server(), McpAuth::User)).await.unwrap();
    let headers = test.servers.call(&run, "headers", "{}").await;
    let shown: Value = serde_json::from_str(text(&headers)).unwrap();
    assert_eq!((&shown["authorization"], &shown["x-team"]), (&"Bearer [token]".into(), &"Bearer [env:TOKEN]".into()));
    let sent = &test.host.requests("tools/call")[0]["headers"];
    assert_eq!(sent["authorization"], format!("Bearer {TOKEN}"));
    assert_eq!(sent["x-team"], format!("Bearer {SECRET}"));
    let kept = serde_json::to_string(&*run).unwrap();
    assert!(!kept.contains(TOKEN), "{kept}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_never_cross_users_or_tokens() {
    let mut test = HttpTest::start("sessions");
    let mut server = test.server();
    server.program.scope = model::definition::McpScope::Shared;
    let sessions = |test: &HttpTest| test.host.requests("initialize").len();
    for (user, token, count) in [
        ("alice", Some(TOKEN), 1),
        ("alice", Some(TOKEN), 1),
        ("alice", Some("another-token"), 2),
        ("bob", Some(TOKEN), 3),
        ("alice", None, 4),
        ("bob", None, 4),
    ] {
        bring(&mut test, token);
        test.servers.resolve_as(user, "thr_1", server.clone()).await.unwrap();
        assert_eq!(sessions(&test), count, "{user} {token:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_credential_is_an_error_that_says_what_to_do() {
    let mut test = HttpTest::start("sessions");
    bring(&mut test, Some(TOKEN));
    let run = test.servers.resolve(test.server()).await.unwrap();
    // As after a restart.
    test.servers.tools.forget_credentials(&"task_R".into());
    let output = test.servers.call(&run, "echo", r#"{"text":"x"}"#).await;
    let (code, message) = error(&output);
    assert_eq!(code, "mcp_unauthorized");
    assert!(message.contains("`Headwater-Mcp-Authorization: s TOKEN`") && message.contains("restarts"), "{message}");
    assert_eq!(test.host.notes("calls").len(), 0, "nothing was sent without it");
    let lost = test.servers.resolve(test.server()).await.unwrap_err();
    assert_eq!(lost.code, "mcp_unauthorized", "nor does a run start without the one that its request brought");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_needs_a_credential_is_not_asked_without_one() {
    let test = HttpTest::start("sessions");
    let error = test.servers.resolve(with_auth(test.server(), McpAuth::User)).await.unwrap_err();
    assert_eq!(error.code, "mcp_unauthorized");
    assert_eq!(test.host.notes("requests").len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_credential_is_named_and_asked_for_again() {
    let mut test = HttpTest::start("unauthorized");
    bring(&mut test, Some(TOKEN));
    let error = test.servers.resolve(test.server()).await.unwrap_err();
    assert_eq!(error.code, "mcp_unauthorized");
    assert!(error.message.contains("refused the credential of this request"), "{}", error.message);
    assert!(!error.message.contains(TOKEN), "{}", error.message);
    assert_eq!(test.host.notes("requests").len(), 1, "no loop");
}
