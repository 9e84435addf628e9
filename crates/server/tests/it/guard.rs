//! Accepted host names and origins.

use crate::auth::create_key;
use crate::harness::Server;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn only_known_host_names_are_answered() {
    let hw = Server::demo_with("[server]\nhosts = [\"hw.example\"]");
    let get = |host: &str| format!("GET /healthz HTTP/1.1\r\n{host}connection: close\r\n\r\n");
    let own = ["host: localhost:1\r\n", "host: 127.0.0.1\r\n", "host: [::1]:80\r\n", "host: HW.example:443\r\n"];
    for host in own {
        assert!(hw.send_raw(get(host)).await.starts_with("HTTP/1.1 200"), "{host}");
    }
    let foreign = [
        "",
        "host: \r\n",
        "host: evil.example\r\n",
        "host: 10.0.0.1\r\n",
        "host: localhost@evil.example\r\n",
        "host: localhost\r\nhost: evil.example\r\n",
        "host: localhost\r\nx-forwarded-host: localhost\r\nhost: localhost\r\n",
        "host: evil.example\r\nx-forwarded-for: 127.0.0.1\r\nx-user-id: admin\r\n",
    ];
    for host in foreign {
        let answer = hw.send_raw(get(host)).await;
        assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("host_not_allowed"), "{host}: {answer}");
    }
}

#[tokio::test]
async fn local_origins_are_allowed_and_others_are_not() {
    let hw = Server::demo_with("[server]\norigins = [\"https://app.example\"]");
    let same = format!("http://{}", hw.address);
    for origin in ["http://localhost:3000", "http://127.0.0.1:5173", "https://app.example", &same] {
        let reply = hw.request(Method::GET, "/v1/tasks", &[("origin", origin)], None).await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, origin));
        assert_eq!(reply.header("vary"), "origin");
        for seen in ["location", "content-disposition", "content-range", "etag"] {
            assert!(reply.header("access-control-expose-headers").contains(seen), "{seen}");
        }
        assert_eq!(reply.header("access-control-allow-credentials"), "");
        // An error response must be readable, too.
        let reply = hw.request(Method::GET, "/v1/tasks/task_1", &[("origin", origin)], None).await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (404, origin));
    }
    for origin in ["https://evil.example", "null", "http://localhost.evil.example", "file://", ""] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let reply = hw.request(method, "/v1/tasks", &[("origin", origin)], None).await;
            assert_eq!(reply.problem(), (403, "origin_not_allowed".to_owned()), "{origin}");
            assert_eq!(reply.header("access-control-allow-origin"), "");
        }
    }
}

#[tokio::test]
async fn a_preflight_lists_allowed_methods_and_headers() {
    let hw = Server::demo();
    let ask = [
        ("origin", "http://localhost:3000"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type, x-sdk-version"),
    ];
    let reply = hw.request(Method::OPTIONS, "/v1/tasks", &ask, None).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (204, "http://localhost:3000"));
    assert!(reply.header("access-control-allow-methods").contains("DELETE"));
    for name in ["authorization", "content-type", "idempotency-key", "last-event-id", "x-sdk-version"] {
        assert!(reply.header("access-control-allow-headers").contains(name));
    }
    let plain = hw.request(Method::OPTIONS, "/v1/tasks", &[], None).await;
    assert_eq!(plain.problem(), (405, "method_not_allowed".to_owned()));
}

/// Front ends are often served from another origin than the API, and their SDKs add headers of their own.
#[tokio::test]
async fn a_page_of_another_origin_uses_chats_and_agui_with_a_key() {
    const PAGE: &str = "https://app.example";
    let hw = Server::demo_with("[auth]\nmode = \"keys\"\n\n[server]\norigins = [\"https://app.example\"]");
    let key = format!("Bearer {}", create_key(&hw, "ann"));
    let message = json!({"id": "m-1", "role": "user", "parts": [{"type": "text", "text": "hello"}]});
    let chat = json!({"id": "chat-1", "agent": "demo", "messages": [message]});
    let input = json!({"threadId": "thread-1", "runId": "run-1", "tools": [], "context": [],
        "messages": [{"id": "m-1", "role": "user", "content": "hello"}]});
    let requests = [
        (Method::GET, "/api/chat/chat-1/stream", None, 204),
        (Method::POST, "/api/chat", Some(chat), 200),
        (Method::POST, "/api/chat", Some(json!({})), 400),
        (Method::GET, "/api/chat/chat-1/stream", None, 200),
        (Method::GET, "/api/chat/chat-1/messages", None, 200),
        (Method::POST, "/api/chat/chat-1/stop", Some(json!({})), 200),
        (Method::POST, "/agui/demo", Some(input.clone()), 200),
        (Method::POST, "/agui/demo/connect", Some(input.clone()), 200),
        (Method::POST, "/agui/demo/stop/thread-1", Some(json!({})), 200),
        (Method::GET, "/agui/demo/threads/nobody/events", None, 404),
        (Method::GET, "/copilotkit/info", None, 200),
        (Method::POST, "/copilotkit", Some(json!({"method": "info"})), 200),
        (Method::POST, "/copilotkit/agent/demo/run", Some(input.clone()), 200),
        (Method::POST, "/copilotkit/agent/demo/connect", Some(input), 200),
        (Method::POST, "/copilotkit/agent/demo/stop/thread-1", Some(json!({})), 200),
    ];
    for (method, path, body, status) in requests {
        let body = body.map(|body| body.to_string().into_bytes());
        let names = "authorization, content-type, x-copilotkit-client, user-agent";
        let ask = [
            ("origin", PAGE),
            ("access-control-request-method", method.as_str()),
            ("access-control-request-headers", names),
        ];
        let preflight = hw.request(Method::OPTIONS, path, &ask, None).await;
        assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, PAGE), "{path}");
        assert!(preflight.header("access-control-allow-methods").contains(method.as_str()), "{method} {path}");
        assert!(preflight.header("access-control-allow-headers").contains(names), "{path}");
        let refused = hw.request(method.clone(), path, &[("origin", PAGE)], body.clone()).await;
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, PAGE), "{path}");
        let headers = [("origin", PAGE), ("authorization", key.as_str()), ("content-type", "application/json")];
        let reply = hw.request(method.clone(), path, &headers, body).await;
        let allowed = reply.header("access-control-allow-origin");
        assert_eq!((reply.status, allowed), (status, PAGE), "{method} {path}: {}", reply.text);
        for seen in ["x-request-id", "retry-after", "www-authenticate", "x-vercel-ai-ui-message-stream"] {
            assert!(reply.header("access-control-expose-headers").contains(seen), "{seen}");
        }
    }
}
