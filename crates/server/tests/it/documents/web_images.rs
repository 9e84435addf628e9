//! Images on the web: a service of the operator's own gets their bytes, never an address inside the network.

use super::file_server::{FileServer, PageResponse};
use super::{Listener, begin_with};
use crate::harness::Server;
use serde_json::{Value, json};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

async fn image_server() -> FileServer {
    let pages = [
        ("/cat.png", PageResponse::File("image/png", PNG.into())),
        ("/page", PageResponse::File("text/html", (&b"<p>no image</p>"[..]).into())),
    ];
    FileServer::start("127.0.0.1:0", pages).await
}

/// The parts of the last user message as the model got them.
async fn parts_for_model(model: &Listener, hw: &Server, urls: &[String]) -> Vec<Value> {
    let images = urls.iter().map(|url| json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}}));
    let task = begin_with(hw, images.collect()).await;
    assert_eq!(hw.wait_ended(&task).await["status"], "completed");
    let asked = model.asked.lock().unwrap();
    let messages = asked.last().unwrap()["messages"].as_array().unwrap();
    let user = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    // Text alone is sent as one string.
    match &user["content"] {
        Value::Array(parts) => parts.iter().skip(1).cloned().collect(),
        text => vec![text.clone()],
    }
}

#[tokio::test]
async fn a_service_of_the_operator_gets_bytes_and_no_address() {
    let (model, web) = (Listener::open().await, image_server().await);
    let hw = model.server(&format!("[fetch]\nallow_private = true\nports = [{}]\n", web.address.port()));
    let found = parts_for_model(&model, &hw, &["/cat.png", "/page", "/none"].map(|path| web.url(path))).await;
    let image = &found[0]["image_url"];
    assert!(image.is_object(), "{found:?}");
    assert!(image["url"].as_str().unwrap().starts_with("data:image/png;base64,iVBOR"), "{image}");
    assert_eq!(image["detail"], "low");
    let notes: Vec<&str> = found[1..].iter().flat_map(|part| part["text"].as_str().unwrap().lines()).collect();
    let left_out = |path: &str, why: &str| format!("[image {} left out: {why}]", web.url(path));
    let status = "the server responded with status 404";
    assert_eq!(notes, [left_out("/page", "it is not an image"), left_out("/none", status)]);
}

#[tokio::test]
async fn an_address_inside_the_network_is_neither_fetched_nor_passed_on() {
    let (model, web) = (Listener::open().await, image_server().await);
    let hw = model.server(&format!("[fetch]\nports = [80, 443, {}]\n", web.address.port()));
    let url = web.url("/cat.png");
    let found = parts_for_model(&model, &hw, std::slice::from_ref(&url)).await;
    let text = found[0].as_str().unwrap();
    assert!(text.ends_with(&format!("[image {url} left out: this address may not be fetched]")), "{text}");
    assert!(web.access_counts().by_path.is_empty());
}

#[tokio::test]
async fn the_operator_can_pass_addresses_on() {
    let (model, web) = (Listener::open().await, image_server().await);
    let hw = model.server_with_provider("image_urls = \"pass\"\n", "");
    let url = web.url("/cat.png");
    let found = parts_for_model(&model, &hw, std::slice::from_ref(&url)).await;
    assert_eq!(found[0]["image_url"]["url"], url);
    assert!(web.access_counts().by_path.is_empty());
}
