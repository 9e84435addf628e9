//! Everything that can be wrong with a request: a named error, never a 500, and nothing in the log.

use crate::harness::Server;
use reqwest::Method;
use serde_json::{Value, json};

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn invalid_bodies_are_refused() {
    let hw = Server::demo();
    let task = hw.start_run("story 1 fast").await;
    hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let before = hw.count_threads_and_records().await;
    let deep =
        format!("{{\"model\":\"demo\",\"metadata\":{}{}}}", "{\"a\":".repeat(40), "1".to_owned() + &"}".repeat(40));
    let abyss = "[".repeat(100_000);
    let table: Vec<(Vec<u8>, u16, &str)> = vec![
        (b"".to_vec(), 400, "invalid_json"),
        (b"null".to_vec(), 422, "invalid_body"),
        (b"[]".to_vec(), 422, "invalid_body"),
        (b"[\"demo\"]".to_vec(), 422, "invalid_body"),
        (b"\"x\"".to_vec(), 422, "invalid_body"),
        (b"123".to_vec(), 422, "invalid_body"),
        (b"{".to_vec(), 400, "invalid_json"),
        (b"{} x".to_vec(), 400, "invalid_json"),
        (b"\xef\xbb\xbf{}".to_vec(), 400, "invalid_json"),
        (b"{\"model\":NaN}".to_vec(), 400, "invalid_json"),
        (b"{\"model\":\"demo\",\"metadata\":{\"a\":1e999}}".to_vec(), 400, "invalid_json"),
        (b"{\"model\":\"\xff\"}".to_vec(), 400, "invalid_json"),
        (b"{\"model\":\"demo\",\"model\":\"demo\"}".to_vec(), 400, "invalid_json"),
        (b"{\"model\":\"demo\",\"metadata\":{\"a\":{\"b\":1,\"b\":1}}}".to_vec(), 400, "invalid_json"),
        (b"{\"model\":\"demo\",\"input\":\"\\ud83d\"}".to_vec(), 400, "invalid_json"),
        (deep.into_bytes(), 400, "invalid_json"),
        (abyss.into_bytes(), 400, "invalid_json"),
        (b"{\"model\":\"demo\",\"input\":\"a\\u0000b\"}".to_vec(), 422, "nul_character"),
        (b"{\"model\":\"demo\",\"metadata\":{\"a\\u0000\":1}}".to_vec(), 422, "nul_character"),
    ];
    for (body, status, code) in table {
        let reply = hw.post_text("/v1/tasks", &body).await;
        assert_eq!(reply.problem(), (status, code.to_owned()), "{:.60?}", String::from_utf8_lossy(&body));
    }
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn invalid_fields_are_refused() {
    let hw = Server::demo();
    let before = hw.count_threads_and_records().await;
    let with = |name: &str, value: Value| {
        let mut body = json!({"model": "demo", "input": "hi"});
        body[name] = value;
        body
    };
    let many: Vec<Value> = (0..200).map(|_| json!({"type": "text", "text": "x"})).collect();
    let tools: Vec<Value> = (0..65).map(|n| json!({"name": format!("t{n}")})).collect();
    let table: Vec<(Value, u16, &str)> = vec![
        (json!({}), 422, "invalid_body"),
        (json!({"model": "demo"}), 422, "no_input"),
        (with("input", json!("")), 422, "no_input"),
        (with("input", json!([])), 422, "no_input"),
        (with("input", json!(5)), 422, "invalid_body"),
        (with("input", json!({"type": "text", "text": "x"})), 422, "invalid_body"),
        (with("input", json!([{"type": "text"}])), 422, "invalid_body"),
        (with("input", json!([{"type": "audio", "url": "x"}])), 422, "invalid_body"),
        (with("input", json!([{"type": "text", "text": "x", "id": 7}])), 422, "invalid_body"),
        (
            with("input", json!([{"type": "text", "text": "x", "tags": ["added_by_reference_manager"]}])),
            422,
            "invalid_body",
        ),
        (
            with("input", json!([{"type": "image_url", "image_url": {"url": "javascript:alert(1)"}}])),
            422,
            "invalid_body",
        ),
        (with("input", json!([{"type": "file", "file": {"bucket": "b"}}])), 422, "invalid_body"),
        (with("input", json!([{"type": "file", "file": {"url": "u", "path": "p"}}])), 422, "invalid_body"),
        (with("input", json!(many)), 422, "invalid_body"),
        (with("input", json!("x".repeat(400_000))), 413, "request_too_large"),
        (with("input", json!("x".repeat(2_000_000))), 413, "request_too_large"),
        (with("model", json!("nobody")), 422, "unknown_agent"),
        (with("model", json!("../../x")), 422, "unknown_agent"),
        (with("model", json!("gpt-4\n")), 422, "unknown_agent"),
        (with("model", json!("x".repeat(10_000))), 422, "unknown_agent"),
        (with("model", json!(["demo"])), 422, "invalid_body"),
        (with("model", json!("scripted/")), 422, "unknown_agent"),
        (with("stream", json!("yes")), 422, "invalid_body"),
        (with("on_busy", json!("panic")), 422, "invalid_body"),
        (with("metadata", json!([])), 422, "invalid_body"),
        (with("thread_id", json!("thr_nothing")), 404, "not_found"),
        (with("thread_id", json!("../x")), 404, "not_found"),
        (with("thread_id", json!(7)), 422, "invalid_body"),
        (with("previous", json!("task_nothing")), 422, "unknown_previous"),
        (with("previous", json!("' OR 1=1--")), 422, "unknown_previous"),
        (with("tools", json!([{"name": "a b"}])), 422, "invalid_body"),
        (with("tools", json!([{"name": "a"}, {"name": "a"}])), 422, "invalid_body"),
        (with("tools", json!([{"name": "a", "parameters": "x"}])), 422, "invalid_body"),
        (with("tools", json!([{"name": "a", "secret": "x"}])), 422, "invalid_body"),
        (with("tools", json!(tools)), 422, "invalid_body"),
        (json!({"model": "demo", "input": "hi", "stream": true, "wait": true}), 422, "invalid_body"),
    ];
    for (body, status, code) in table {
        let reply = hw.post("/v1/tasks", body.clone()).await;
        assert_eq!(reply.problem(), (status, code.to_owned()), "{:.120}: {}", body.to_string(), reply.text);
        assert!(reply.text.len() < 2_000, "what was sent is not sent back");
    }
    let invented =
        ["user_id", "owner", "role", "status", "seq", "created_at", "__proto__", "constructor", "$where", "toString"];
    for name in invented {
        let reply = hw.post("/v1/tasks", with(name, json!("x"))).await;
        assert_eq!(reply.problem(), (422, "invalid_body".to_owned()), "{name}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(name), "{}", reply.text);
    }
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn the_other_commands_validate_as_strictly() {
    let hw = Server::demo();
    let task = hw.start_run("story 1 fast").await;
    let id = task["task_id"].as_str().unwrap();
    hw.wait_ended(id).await;
    let before = hw.count_threads_and_records().await;
    let table = [
        ("cancel", json!({"mode": "now"}), 422, "invalid_body"),
        ("cancel", json!({"how": "immediate"}), 422, "invalid_body"),
        ("cancel", json!([]), 422, "invalid_body"),
        ("input", json!({}), 422, "invalid_body"),
        ("input", json!({"input": ""}), 422, "no_input"),
        ("input", json!({"input": "x", "more": 1}), 422, "invalid_body"),
        ("input", json!({"input": "x".repeat(300_000)}), 413, "request_too_large"),
        ("approvals/apr_1", json!({}), 422, "invalid_body"),
        ("approvals/apr_1", json!({"decision": "maybe"}), 422, "invalid_body"),
        ("approvals/apr_1", json!({"decision": "edit"}), 422, "invalid_body"),
        ("approvals/apr_1", json!({"decision": "approve", "arguments": []}), 422, "invalid_body"),
        ("approvals/apr_1", json!({"decision": "reject", "arguments": {}}), 422, "invalid_body"),
        ("approvals/%00", json!({"decision": "approve"}), 404, "approval_not_found"),
        ("tool_results", json!({}), 422, "invalid_body"),
        ("tool_results", json!([{"call_id": "call_1"}]), 422, "invalid_body"),
        ("tool_results", json!([["call_1", "x"]]), 422, "invalid_body"),
        ("tool_results", json!([{"call_id": "a b", "content": "x"}]), 422, "invalid_body"),
    ];
    for (verb, body, status, code) in table {
        let reply = hw.post(&format!("/v1/tasks/{id}/{verb}"), body.clone()).await;
        assert_eq!(reply.problem(), (status, code.to_owned()), "{verb} {:.80}: {}", body.to_string(), reply.text);
    }
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn only_plain_json_is_a_body() {
    let hw = Server::demo();
    let body = || Some(json!({"model": "demo", "input": "hi"}).to_string().into_bytes());
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonx",
        "application/json; charset=utf-16",
        "",
    ] {
        let reply = hw.request(Method::POST, "/v1/tasks", &[("content-type", kind)], body()).await;
        assert_eq!(reply.problem(), (415, "unsupported_media_type".to_owned()), "{kind}");
    }
    assert_eq!(hw.request(Method::POST, "/v1/tasks", &[], body()).await.problem().0, 415);
    for encoding in ["gzip", "br", "identity"] {
        let reply = hw.request(Method::POST, "/v1/tasks", &[JSON, ("content-encoding", encoding)], body()).await;
        assert_eq!(reply.problem(), (415, "unsupported_encoding".to_owned()));
    }
    for kind in ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\""] {
        let reply = hw.request(Method::POST, "/v1/tasks", &[("content-type", kind)], body()).await;
        assert_eq!(reply.status, 202, "{kind}");
    }
}

#[tokio::test]
async fn impossible_ids_are_refused() {
    let hw = Server::demo();
    let long = "x".repeat(5_000);
    let odd = [
        "..",
        "%2e%2e",
        "a%2fb",
        "%00",
        "%F0%9F%98%80",
        "'%20OR%201=1--",
        &long,
        "task_",
        "thr_",
        "%ff",
        "task_ab%0Ac",
    ];
    let missing = hw.get("/v1/tasks/task_00000000000000000000000000000000").await;
    assert_eq!(missing.problem(), (404, "not_found".to_owned()));
    for id in odd {
        for path in [
            format!("/v1/tasks/{id}"),
            format!("/v1/tasks/{id}/events"),
            format!("/v1/threads/{id}"),
            format!("/v1/threads/{id}/events"),
        ] {
            let reply = hw.get(&path).await;
            assert_eq!((reply.problem(), &reply.text), ((404, "not_found".to_owned()), &missing.text), "{path}");
        }
        let reply = hw.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
        assert_eq!(reply.text, missing.text, "{id}");
    }
    for path in [
        "/v1/tasks/",
        "/v1/tasks/a/b",
        "/v1",
        "/v2/tasks",
        "/nothing",
        "//",
        "/v1/tasks/x/events/",
        "/%2e%2e/%2e%2e/etc/passwd",
    ] {
        assert_eq!(hw.get(path).await.text, missing.text, "{path}");
    }
}

#[tokio::test]
async fn impossible_queries_are_refused() {
    let hw = Server::demo();
    for limit in ["0", "-1", "101", "1e9", "abc", "", "%2B5", "1.0", "99999999999999999999"] {
        for path in ["/v1/tasks", "/v1/threads"] {
            let reply = hw.get(&format!("{path}?limit={limit}")).await;
            assert_eq!(reply.problem(), (422, "invalid_query".to_owned()), "{limit}");
        }
    }
    let long = "x".repeat(1_000);
    for query in [
        "statuss=running",
        "status=sleeping",
        "status=",
        "limit=1&limit=2",
        "access_token=hw_1",
        "before=%00",
        &format!("before={long}"),
    ] {
        let reply = hw.get(&format!("/v1/tasks?{query}")).await;
        assert_eq!(reply.problem(), (422, "invalid_query".to_owned()), "{query}");
    }
    for query in ["before=task_unknown", "before=zzz", "limit=100", "limit=1", "before="] {
        assert_eq!(hw.get(&format!("/v1/tasks?{query}")).await.status, 200, "{query}");
    }
    assert_eq!(hw.get("/v1/tasks?thread_id=..").await.problem().0, 404);
    let reply = hw.post("/v1/tasks?stream=true", json!({"model": "demo", "input": "hi"})).await;
    assert_eq!(reply.problem(), (422, "invalid_query".to_owned()));
}

#[tokio::test]
async fn unsupported_methods_are_refused() {
    let hw = Server::demo();
    let table = [
        (Method::PUT, "/v1/tasks", "POST,GET,HEAD"),
        (Method::PATCH, "/v1/tasks/task_1", "GET,HEAD"),
        (Method::GET, "/v1/tasks/task_1/cancel", "POST"),
        (Method::POST, "/v1/threads/thr_1", "GET,HEAD,DELETE"),
        (Method::POST, "/healthz", "GET,HEAD"),
        (Method::DELETE, "/", "GET,HEAD"),
        (Method::from_bytes(b"BREW").unwrap(), "/v1/tasks", "POST,GET,HEAD"),
        (Method::TRACE, "/v1/tasks", "GET, HEAD, POST, DELETE"),
    ];
    for (method, path, allow) in table {
        let reply = hw.request(method.clone(), path, &[("x-http-method-override", "GET")], None).await;
        assert_eq!(reply.problem(), (405, "method_not_allowed".to_owned()), "{method} {path}");
        assert_eq!(reply.header("allow"), allow, "{method} {path}");
    }
}
