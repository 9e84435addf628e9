//! Tokens of a source: asked before every request, replaced once when the server refuses one.

use crate::fixtures::text;
use crate::http_server::HttpTest;
use mcp::{BearerToken, TokenRefusal, TokenSource, TokenUser};
use model::definition::{McpAuth, McpServer, McpTransport, OAuthClient};
use model::error::ErrorInfo;
use model::ports::BoxFuture;
use model::tool::ToolEvent;
use std::sync::{Arc, Mutex};

/// Gives each user a token, and a fresh one for one that was refused.
#[derive(Default)]
struct FakeTokens {
    refusals: Mutex<Vec<TokenRefusal>>,
}

impl TokenSource for FakeTokens {
    fn bearer_token(&self, server: &TokenUser) -> BoxFuture<'static, Result<Option<BearerToken>, ErrorInfo>> {
        let token = BearerToken::new(&format!("token-of-{}", server.user.as_str()));
        Box::pin(async move { Ok(token) })
    }

    fn replace_token(
        &self,
        _: &TokenUser,
        refusal: TokenRefusal,
    ) -> BoxFuture<'static, Result<BearerToken, ErrorInfo>> {
        self.refusals.lock().unwrap().push(refusal);
        Box::pin(async { Ok(BearerToken::new("fresh-token").unwrap()) })
    }
}

fn start(mode: &str) -> (HttpTest, Arc<FakeTokens>, McpServer) {
    let (mut test, tokens) = (HttpTest::start(mode), Arc::new(FakeTokens::default()));
    test.servers.tools = test.servers.tools.clone().with_tokens(Arc::clone(&tokens) as Arc<dyn TokenSource>);
    let mut server = test.server();
    if let McpTransport::Endpoint(endpoint) = &mut server.program.transport {
        endpoint.auth = Some(Arc::new(McpAuth::OAuth(OAuthClient::default())));
    }
    (test, tokens, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_carries_the_token_of_its_user() {
    let (test, _, server) = start("sessions");
    let run = test.servers.resolve(server).await.unwrap();
    let headers = test.servers.call(&run, "headers", "{}").await;
    assert!(text(&headers).contains("Bearer [token]"), "{}", text(&headers));
    let requests = test.host.notes("requests");
    let is_alices = |request: &serde_json::Value| request["headers"]["authorization"] == "Bearer token-of-alice";
    assert!(requests.iter().all(is_alices), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_is_replaced_once_and_never_in_a_loop() {
    let (test, tokens, server) = start("sessions");
    let run = test.servers.resolve(server).await.unwrap();
    let events = test.servers.events(&run, "unauthorized", "{}").await;
    let [ToolEvent::InputRequired(asked)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(asked.questions[0].question.url.as_deref(), Some("/v1/mcp/s/authorize"));
    let sent: Vec<_> =
        test.host.requests("tools/call").iter().map(|call| call["headers"]["authorization"].clone()).collect();
    assert_eq!(sent, ["Bearer token-of-alice", "Bearer fresh-token"]);
    let refusals = tokens.refusals.lock().unwrap();
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!((refusal.status, refusal.token.clone()), (401, BearerToken::new("token-of-alice")));
    assert_eq!(refusal.challenges, [r#"Bearer resource_metadata="http://169.254.169.254/x""#]);
}
