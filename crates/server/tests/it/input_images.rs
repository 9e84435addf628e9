//! Images and files in requests of every protocol: which are accepted, and that refused ones leave nothing behind.

mod image_owners;
mod large_bodies;
mod resent_images;
mod stored_images;

use crate::attachments::stored_files as kept;
use crate::blobs::{blob_path as blob, data_url, unique_png as png};
use crate::blocks::socket::Socket;
use crate::harness::{Reply, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The protocols with images in their messages.
const API_PROTOCOLS: [ApiProtocol; 4] =
    [ApiProtocol::Native, ApiProtocol::Responses, ApiProtocol::Messages, ApiProtocol::Chat];

#[derive(Clone, Copy, Debug, PartialEq)]
enum ApiProtocol {
    Native,
    Responses,
    Messages,
    Chat,
}

impl ApiProtocol {
    const fn path(self) -> &'static str {
        match self {
            Self::Native => "/v1/tasks",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Chat => "/v1/chat/completions",
        }
    }

    /// A request with text and an image.
    fn request_with_image(self, url: &str) -> Value {
        self.request_with_parts("hello", &[self.image_part(url)])
    }

    fn request_with_parts(self, words: &str, more: &[Value]) -> Value {
        let kind = if self == Self::Responses { "input_text" } else { "text" };
        let mut parts = vec![json!({"type": kind, "text": words})];
        parts.extend(more.iter().cloned());
        let messages = json!([{"role": "user", "content": parts}]);
        match self {
            Self::Native => json!({"model": "demo", "input": parts, "wait": true}),
            Self::Responses => json!({"model": "demo", "input": messages}),
            Self::Messages => json!({"model": "demo", "max_tokens": 100, "messages": messages}),
            Self::Chat => json!({"model": "demo", "messages": messages}),
        }
    }

    fn image_part(self, url: &str) -> Value {
        match self {
            Self::Native | Self::Chat => json!({"type": "image_url", "image_url": {"url": url}}),
            Self::Responses => json!({"type": "input_image", "image_url": url}),
            Self::Messages => {
                let inside = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
                let source = match inside {
                    Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
                    None => json!({"type": "url", "url": url}),
                };
                json!({"type": "image", "source": source})
            }
        }
    }

    fn file_part(self, url: &str, name: &str) -> Value {
        match self {
            Self::Native => json!({"type": "file", "file": {"url": url, "name": name}}),
            Self::Chat => json!({"type": "file", "file": {"file_data": url, "filename": name}}),
            Self::Responses if url.starts_with("data:") => {
                json!({"type": "input_file", "file_data": url, "filename": name})
            }
            Self::Responses => json!({"type": "input_file", "file_url": url, "filename": name}),
            Self::Messages => {
                let image = self.image_part(url);
                json!({"type": "document", "title": name, "source": image["source"]})
            }
        }
    }

    /// The status of an invalid body in this protocol.
    const fn invalid_body_status(self) -> u16 {
        if matches!(self, Self::Native) { 422 } else { 400 }
    }
}

/// An image header with this size.
fn png_of_size(width: u32, height: u32, tag: &str) -> Vec<u8> {
    let head = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &width.to_be_bytes(), &height.to_be_bytes()].concat();
    [&head[..], b"\x08\x06\0\0\0", tag.as_bytes()].concat()
}

fn picture_url(tag: &str) -> String {
    data_url("image/png", &png(tag))
}

/// The bytes at a URL.
async fn fetch_bytes(hw: &Server, address: &str, token: Option<&str>) -> (u16, Vec<u8>) {
    let mut request = hw.client.get(hw.url(address));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.bytes().await.unwrap().to_vec())
}

/// The text of all events of all threads.
async fn all_events_text(hw: &Server) -> String {
    let tasks = hw.get("/v1/tasks?limit=100").await.json();
    let mut all = String::new();
    for task in tasks["data"].as_array().unwrap() {
        all += &hw.get(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap())).await.text;
    }
    all
}

async fn send_as(hw: &Server, token: &str, path: &str, body: &Value) -> Reply {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", &*bearer), ("content-type", "application/json")];
    hw.request(Method::POST, path, &headers, Some(body.to_string().into_bytes())).await
}

#[tokio::test]
async fn an_invalid_image_is_refused_in_the_error_format_of_every_protocol_and_not_stored() {
    let hw = Server::demo_with("[files]\nimage_bytes_max = 1000\nupload_bytes_max = 1000");
    let good = STANDARD.encode(png("good"));
    let (first, second) = good.split_at(8);
    let wrong = [
        ("no base64", format!("data:image/png;base64,{first}*{second}"), 422),
        ("a space in it", format!("data:image/png;base64,{first} {second}"), 422),
        ("a line break in it", format!("data:image/png;base64,{first}\n{second}"), 422),
        ("a line break after it", format!("data:image/png;base64,{good}\n"), 422),
        ("another alphabet", format!("data:image/png;base64,{}", STANDARD.encode([255; 30]).replace('/', "_")), 422),
        ("too short", format!("data:image/png;base64,{}", &good[..good.len() - 1]), 422),
        ("html", data_url("image/png", b"<html><script>alert(1)</script></html>"), 422),
        ("svg", data_url("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"), 422),
        ("a PDF", data_url("image/png", b"%PDF-1.7\n\x80\x81"), 422),
        ("bytes", data_url("image/png", &[0; 100]), 422),
        ("a GIF of 7 bytes", data_url("image/gif", b"GIF89a\x01"), 422),
        ("a PNG without pixels", data_url("image/png", &png_of_size(0, 0, "none")), 422),
        ("a picture of 65535 by 65535", data_url("image/png", &png_of_size(65_535, 65_535, "bomb")), 422),
        ("a long line", data_url("image/png", &png_of_size(1_000_000, 1, "line")), 422),
        ("too large", data_url("image/png", &png(&"x".repeat(1000))), 413),
    ];
    for way in API_PROTOCOLS {
        for (what, url, status) in &wrong {
            let status = if *status == 413 { 413 } else { way.invalid_body_status() };
            let reply = hw.post(way.path(), way.request_with_image(url)).await;
            assert_eq!(reply.status, status, "{way:?}: {what}: {}", reply.text);
            assert!(reply.text.len() < 1000, "what was sent is not sent back: {}", reply.text);
            // A valid one next to it does not count either.
            let both = [way.image_part(&picture_url("beside")), way.image_part(url)];
            assert_eq!(
                hw.post(way.path(), way.request_with_parts("hello", &both)).await.status,
                status,
                "{way:?}: {what}"
            );
        }
        for (what, url) in [
            ("no base64", "data:application/pdf;base64,JVBERi0*"),
            ("nothing", "data:application/pdf;base64,"),
            ("a bomb", &data_url("application/octet-stream", &png_of_size(65_535, 65_535, "bomb"))),
        ] {
            let reply = hw.post(way.path(), way.request_with_parts("hello", &[way.file_part(url, "a.pdf")])).await;
            assert_eq!(reply.status, way.invalid_body_status(), "{way:?}: {what}: {}", reply.text);
        }
        let large = way.file_part(&data_url("text/plain", &[b'x'; 1001]), "a.txt");
        assert_eq!(hw.post(way.path(), way.request_with_parts("hello", &[large])).await.status, 413, "{way:?}");
    }
    assert_eq!(hw.count_threads_and_records().await, (0, 0), "nothing was begun");
    assert_eq!(kept(&hw), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn an_image_error_names_the_field_and_the_rule() {
    let hw = Server::demo_with("[files]\nimage_bytes_max = 1000");
    for (url, code) in [
        ("data:image/png;base64,****".to_owned(), "invalid_body"),
        (data_url("image/png", b"<html></html>"), "invalid_body"),
        (data_url("image/png", &png_of_size(65_535, 65_535, "")), "image_too_large"),
        (data_url("image/png", &png(&"x".repeat(1000))), "body_too_large"),
        (format!("/v1/blobs/{}", "0".repeat(64)), "not_found"),
    ] {
        let native = hw.post("/v1/tasks", ApiProtocol::Native.request_with_image(&url)).await;
        assert_eq!(native.problem().1, code, "{}", native.text);
        let error =
            hw.post("/v1/responses", ApiProtocol::Responses.request_with_image(&url)).await.json()["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        if code != "not_found" {
            assert!(native.json()["detail"].as_str().unwrap().starts_with("`input`: "), "{}", native.text);
            assert_eq!(error["param"], "input", "{error}");
        }
        let error =
            hw.post("/v1/messages", ApiProtocol::Messages.request_with_image(&url)).await.json()["error"].clone();
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
    }
}

#[tokio::test]
async fn an_invalid_url_is_refused_and_a_forbidden_one_fails_its_file_only() {
    let hw = Server::demo();
    for way in [ApiProtocol::Native, ApiProtocol::Responses, ApiProtocol::Messages] {
        for no in ["passwd", "../passwd", " data:text/plain;base64,YQ==", "DATA:text/plain;base64,YQ=="] {
            let reply = hw.post(way.path(), way.request_with_parts("hello", &[way.file_part(no, "a")])).await;
            assert_eq!(reply.status, way.invalid_body_status(), "{way:?}: {no}: {}", reply.text);
        }
        for far in ["file:///etc/passwd", "ftp://files.example/a", "http://127.0.0.1:1/a", "gopher://x"] {
            let reply = hw.post(way.path(), way.request_with_parts("hello", &[way.file_part(far, "a")])).await;
            assert_eq!(reply.status, 200, "{way:?}: {far}: {}", reply.text);
        }
        let many: Vec<Value> = (0..11).map(|n| way.file_part(&format!("http://127.0.0.1:1/{n}"), "a")).collect();
        let reply = hw.post(way.path(), way.request_with_parts("hello", &many)).await;
        assert_eq!(reply.status, way.invalid_body_status(), "{way:?}: {}", reply.text);
        assert_eq!(hw.post(way.path(), way.request_with_parts("hello", &many[..10])).await.status, 200, "{way:?}");
    }
}

#[tokio::test]
async fn a_socket_gets_the_errors_of_its_files() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    let many: Vec<String> = (0..11).map(|n| format!("http://127.0.0.1:1/{n}")).collect();
    let unknown = format!("/v1/blobs/{}", "0".repeat(64));
    for (urls, code) in [
        (json!("https://example.com/a"), "invalid_body"),
        (json!([7]), "invalid_body"),
        (json!([null]), "invalid_body"),
        (json!(many), "invalid_body"),
        (json!(["report.pdf"]), "invalid_body"),
        (json!(["data:application/pdf;base64,JVBERi0*"]), "invalid_body"),
        (json!([picture_url("beside"), unknown]), "not_found"),
    ] {
        socket.send_json(&json!({"type": "chat", "content": "hello", "content_urls": urls})).await;
        let error = socket.next_event().await;
        assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!(code)), "{urls}: {error}");
        if code == "invalid_body" {
            assert!(error["message"].as_str().unwrap().contains("content_urls"), "{error}");
        }
    }
    assert_eq!(
        (hw.count_threads_and_records().await, kept(&hw).len()),
        ((0, 0), 0),
        "nothing was begun, and nothing is kept"
    );
}

#[tokio::test]
async fn items_of_a_conversation_are_validated_on_arrival() {
    let hw = Server::demo();
    let item = |url: &str| json!({"items": [{"role": "user", "content": [ApiProtocol::Responses.image_part(url)]}]});
    let bad = [("data:image/png;base64,****".to_owned(), 400), (format!("/v1/blobs/{}", "0".repeat(64)), 404)];
    for (url, status) in &bad {
        assert_eq!(hw.post("/v1/conversations", item(url)).await.status, *status, "{url}");
    }
    let conversation = hw.post("/v1/conversations", json!({})).await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/conversations/{conversation}/items");
    for (url, status) in &bad {
        assert_eq!(hw.post(&path, item(url)).await.status, *status, "{url}");
    }
    assert_eq!(hw.post(&path, item(&picture_url("waits"))).await.status, 200);
    assert_eq!(kept(&hw).len(), 0, "nobody has read it yet");
    let body = json!({"model": "demo", "conversation": conversation, "input": "hello"});
    assert_eq!(hw.post("/v1/responses", body).await.status, 200);
    assert_eq!(kept(&hw).len(), 1);
    let items = hw.get(&path).await.text;
    assert!(items.contains(&blob(&png("waits"))) && !items.contains(";base64,"), "{items}");
}
