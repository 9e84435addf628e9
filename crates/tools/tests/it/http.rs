//! HTTP tools: the request, and how the response is parsed.

use crate::site::{Site, answer, head};
use crate::test_toolbox::{address, call, failed, request, said, start};
use futures_util::StreamExt;
use model::definition::{DeclaredParameters, HttpTool, ToolExecutor};
use model::tool::{ProgressUpdate, ToolEvent};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

fn http(tool: HttpTool, arguments: &Value) -> model::tool::ToolRequest {
    request(ToolExecutor::Http(tool), &arguments.to_string())
}

async fn plain() -> Site {
    Site::answering(answer("200 OK", "text/plain", "fine")).await
}

#[tokio::test]
async fn a_get_has_its_arguments_in_path_and_query_and_the_calls_ids() {
    let site = plain().await;
    let tool = address("get", site.url("/items/{id}?fixed=1&q={q}"));
    let arguments = json!({"id": "a/b", "q": "x&y", "n": 3, "none": null, "list": [1, "é"]});
    assert_eq!(said(http(tool, &arguments)).await, "fine");
    let seen = site.only();
    assert_eq!(seen.method, "GET");
    assert_eq!(seen.target, "/items/a%2Fb?fixed=1&q=x%26y&list=%5B1%2C%22%C3%A9%22%5D&n=3");
    assert_eq!(seen.body, "");
    let ours = ["idempotency-key", "headwater-user", "headwater-thread", "headwater-run", "headwater-call"];
    let ours = ours.map(|name| seen.header(name).unwrap_or("(none)"));
    assert_eq!(ours, ["call_R2", "local", "thr_1", "task_R", "call_R2"]);
}

#[tokio::test]
async fn only_declared_arguments_are_sent_and_none_overrides_the_url() {
    let declared = |names: Value| DeclaredParameters::from_schema(&json!({"properties": names}));
    for (method, target, body) in
        [("GET", "/x?fixed=1&q=safe&note=hi", ""), ("POST", "/x?fixed=1&q=safe", r#"{"fixed":"2","note":"hi"}"#)]
    {
        let site = plain().await;
        let arguments = json!({"symbol": "safe", "fixed": "2", "q": "other", "note": "hi", "admin": true});
        let mut call = http(address(method, site.url("/x?fixed=1&q={symbol}")), &arguments);
        call.parameters = declared(json!({"symbol": {}, "note": {}, "fixed": {}}));
        assert_eq!(said(call).await, "fine");
        let seen = site.only();
        assert_eq!((seen.target.as_str(), seen.body.as_str()), (target, body));
    }
}

#[tokio::test]
async fn delete_and_head_have_no_body_either() {
    for method in ["DELETE", "HEAD"] {
        let site = Site::answering("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
        let tool = address(method, site.url("/x"));
        assert_eq!(said(http(tool, &json!({"a": 1}))).await, "(no output)");
        let seen = site.only();
        assert_eq!((seen.method.as_str(), seen.target.as_str(), seen.body.as_str()), (method, "/x?a=1", ""));
    }
}

#[tokio::test]
async fn a_post_has_the_arguments_unused_by_the_url_as_its_body() {
    let site = plain().await;
    let tool = address("POST", site.url("/items/{id}"));
    said(request(ToolExecutor::Http(tool), r#"{"id":7,"big":123456789012345678901234567890,"o":{"a":[]}}"#)).await;
    let seen = site.only();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/items/7"));
    assert_eq!(seen.body, r#"{"big":123456789012345678901234567890,"o":{"a":[]}}"#);
    assert_eq!(seen.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn a_body_can_be_a_template() {
    let site = plain().await;
    let body = Some(json!({"query": {"text": "{q}", "limit": 5, "tags": ["{tags}"]}, "from": "{from}"}));
    let tool = HttpTool { body, ..address("PUT", site.url("/search")) };
    said(http(tool, &json!({"q": "x", "tags": ["a"], "unused": 1}))).await;
    let seen: Value = serde_json::from_str(&site.only().body).unwrap();
    assert_eq!(seen, json!({"query": {"text": "x", "limit": 5, "tags": [["a"]]}}));
}

#[tokio::test]
async fn arguments_that_do_not_fit_the_url_are_refused_before_any_request() {
    let site = plain().await;
    for arguments in [json!({}), json!({"id": {"x": 1}}), json!({"id": ""}), json!({"id": ".."}), json!([])] {
        let (code, _) = failed(http(address("GET", site.url("/items/{id}")), &arguments)).await;
        assert_eq!(code, "invalid_arguments", "{arguments}");
    }
    assert_eq!(site.seen().len(), 0);
}

#[tokio::test]
async fn an_invalid_definition_is_an_error() {
    let site = plain().await;
    let no_method = address("GE T", site.url("/"));
    let mut no_header = address("GET", site.url("/"));
    no_header.headers.insert("a b".to_owned(), "c".to_owned());
    for tool in [no_method, no_header, address("GET", "nowhere".to_owned())] {
        assert_eq!(failed(http(tool, &json!({}))).await.0, "invalid_tool");
    }
    assert_eq!(site.seen().len(), 0);
}

#[tokio::test]
async fn a_definition_cannot_override_the_identity_headers() {
    let site = plain().await;
    let mut tool = address("POST", site.url("/"));
    for (name, value) in [("Headwater-User", "root"), ("X-Own", "kept"), ("Content-Type", "application/x-own")] {
        tool.headers.insert(name.to_owned(), value.to_owned());
    }
    said(http(tool, &json!({}))).await;
    let seen = site.only();
    let headers = ["headwater-user", "x-own", "content-type"].map(|name| seen.header(name));
    assert_eq!(headers, [Some("local"), Some("kept"), Some("application/x-own")]);
}

#[tokio::test]
async fn the_result_is_the_body_or_what_a_pointer_selects() {
    let body = "{\"type\":\"progress\"}\n";
    let site = Site::answering(answer("200 OK", "application/json; charset=utf-8", body)).await;
    let (events, _) = call(http(address("GET", site.url("/")), &json!({}))).await;
    assert_eq!(events, []);
    assert_eq!(said(http(address("GET", site.url("/")), &json!({}))).await, r#"{"type":"progress"}"#);

    let tool = |pointer: &str| HttpTool { result: Some(pointer.to_owned()), ..address("GET", site.url("/")) };
    assert_eq!(said(http(tool("/type"), &json!({}))).await, "progress");
    let (code, message) = failed(http(tool("/other"), &json!({}))).await;
    assert_eq!(code, "invalid_output");
    assert!(message.contains("nothing at `/other`"), "{message}");
}

#[tokio::test]
async fn a_line_delimited_response_is_streamed() {
    let more = Arc::new(Notify::new());
    let wait = Arc::clone(&more);
    let site = Site::serving(move |mut socket| {
        let wait = Arc::clone(&wait);
        async move {
            let begin = head("application/x-ndjson") + "{\"type\":\"progress\",\"progress\":1}\n";
            socket.write_all(begin.as_bytes()).await.unwrap();
            wait.notified().await;
            socket.write_all(b"{\"type\":\"custom\",\"name\":\"n\",\"value\":2}\n{\"a\": 1}\n").await.unwrap();
        }
    })
    .await;
    let mut events = start(http(address("POST", site.url("/")), &json!({})));
    let first = events.next().await;
    assert_eq!(first, Some(ToolEvent::Progress(ProgressUpdate { progress: Some(1.0), ..ProgressUpdate::default() })));
    more.notify_one();
    let rest: Vec<ToolEvent> = events.collect().await;
    let [ToolEvent::Custom { name, value }, ToolEvent::End(output)] = rest.as_slice() else { panic!("{rest:?}") };
    assert_eq!((name.as_str(), value), ("n", &json!(2)));
    assert_eq!(output.message_content, [model::content::ContentPart::text(r#"{"a":1}"#)]);
}

#[tokio::test]
async fn an_error_response_has_its_status_and_the_start_of_its_body() {
    let site = Site::answering(answer("404 Not Found", "text/plain", &"é".repeat(2000))).await;
    let (_, output) = call(http(address("GET", site.url("/")), &json!({}))).await;
    let error = output.error.unwrap();
    assert_eq!(error.code, "http_error");
    assert_eq!(error.message, format!("status 404 Not Found: {}", "é".repeat(500)));
    assert_eq!(error.details, Some(json!({"status": 404})));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = plain().await;
    let moved = format!("HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", other.url("/"));
    let site = Site::answering(moved).await;
    let (code, message) = failed(http(address("GET", site.url("/")), &json!({}))).await;
    assert_eq!((code.as_str(), message.as_str()), ("http_error", "status 302 Found"));
    assert_eq!(other.seen().len(), 0);
}
