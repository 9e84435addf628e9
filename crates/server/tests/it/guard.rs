//! Accepted host names and origins.

use crate::harness::Server;
use reqwest::Method;

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
