//! `?blobs=signed`: URLs of blobs that need no key.

use super::{KEYS, blob_path, data_url, image_part, run_with_parts, sha256_hex, unique_png};
use crate::attachments::str_field;
use crate::auth::{create_key, live_key_id};
use crate::blocks::socket::Socket;
use crate::harness::{Server, http_client, parse_frames};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::json;

/// The first signed URL in a text.
fn signed_url(text: &str) -> String {
    let start = text.find("?user=").unwrap_or_else(|| panic!("no signed URL in {text}"));
    let start = text[..start].rfind('"').unwrap() + 1;
    text[start..].split('"').next().unwrap().to_owned()
}

fn without_signatures(text: &str) -> String {
    let mut parts = text.split("?user=");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, rest| text + &rest[rest.find('"').unwrap()..])
}

/// Fetches with nothing but the URL.
async fn fetch_status(hw: &Server, url: &str) -> u16 {
    http_client().get(hw.url(url)).send().await.unwrap().status().as_u16()
}

/// A server with keys that Ann uses, her thread, and her task, which got an image and generated one.
async fn ann_with_images(more: &str) -> (Server, String, String) {
    let hw = Server::demo_that_draws(&format!("{KEYS}\n{more}"));
    let key = create_key(&hw, "ann");
    let hw = hw.with_key(&key);
    let input = json!([image_part(&unique_png("input")), {"type": "text", "text": "image"}]);
    let task = hw.post("/v1/tasks", json!({"model": "demo", "input": input, "wait": true})).await.json();
    assert_eq!(task["status"], "completed", "{task}");
    (hw, str_field(&task, "thread_id").to_owned(), str_field(&task, "task_id").to_owned())
}

#[tokio::test]
async fn a_signed_blob_url_needs_no_key_and_cannot_be_altered() {
    let (hw, thread, task) = ann_with_images("").await;
    let plain = hw.get(&format!("/v1/tasks/{task}")).await.text;
    assert!(!plain.contains("?user="), "{plain}");
    let signed = hw.get(&format!("/v1/tasks/{task}?blobs=signed")).await.text;
    assert_eq!(without_signatures(&signed), plain);
    let url = signed_url(&signed);
    let response = http_client().get(hw.url(&url)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "image/png");
    let bytes = response.bytes().await.unwrap();
    assert!(url.starts_with(&blob_path(&bytes)), "{url}");
    assert_eq!(http_client().head(hw.url(&url)).send().await.unwrap().status(), 200);

    assert_eq!(fetch_status(&hw, &blob_path(&bytes)).await, 401);
    let other = url.replace(&sha256_hex(&bytes), &"0".repeat(64));
    let last = if url.ends_with('0') { "1" } else { "0" };
    let later = url.replacen("expires=1", "expires=2", 1);
    assert_ne!(later, url);
    for altered in [
        other,
        format!("{}{last}", &url[..url.len() - 1]),
        later,
        url.replacen("user=ann", "user=ben", 1),
        url.replacen("expires=", "expires=0", 1),
        url.replacen("?user=ann&", "?", 1),
    ] {
        assert_eq!(fetch_status(&hw, &altered).await, 403, "{altered}");
    }
    assert_eq!(fetch_status(&hw, &format!("{url}&x=1")).await, 422);
    // It is good for reading this blob and for nothing else.
    let query = url.split_once('?').unwrap().1;
    assert_eq!(fetch_status(&hw, &format!("/v1/tasks/{task}?{query}")).await, 401);

    // Sent back as input it is the same blob again.
    let part = json!({"type": "image_url", "image_url": {"url": url}});
    assert_eq!(run_with_parts(&hw, Some(&thread), &[part]).await, thread);
    for path in [format!("/v1/tasks/{task}?blobs=x"), format!("/v1/tasks/{task}?blobs=signed&blobs=plain")] {
        assert_eq!(hw.get(&path).await.problem(), (422, "invalid_query".to_owned()), "{path}");
    }
    assert_eq!(hw.get("/v1/threads?blobs=signed").await.problem(), (422, "invalid_query".to_owned()));

    assert!(hw.run_cli(&["keys", "revoke", &live_key_id(&hw, "ann")]).status.success());
    assert_eq!(fetch_status(&hw, &url).await, 404, "its user has no access any more");
}

#[tokio::test]
async fn every_protocol_signs_on_the_way_out_and_records_stay_unsigned() {
    let (hw, thread, task) = ann_with_images("").await;
    let body = json!({"model": "demo", "stream": true, "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": data_url("image/png", &unique_png("input"))},
        {"type": "input_text", "text": "story 1 fast"},
    ]}]});
    let created = hw.post("/v1/responses?blobs=signed", body).await;
    assert_eq!(created.status, 200, "{}", created.text);
    let start = created.text.find("resp_").unwrap();
    let response = created.text[start..].split('"').next().unwrap();
    for path in [
        format!("/v1/tasks/{task}/events"),
        format!("/v1/tasks/{task}/events?format=run-items"),
        format!("/v1/responses/{response}"),
        format!("/v1/responses/{response}?stream=true"),
        format!("/v1/responses/{response}/input_items"),
        format!("/api/v1/agent/history?threadId={thread}"),
    ] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let (plain, signed) = (hw.get(&path).await, hw.get(&format!("{path}{separator}blobs=signed")).await);
        assert_eq!((plain.status, signed.status), (200, 200), "{path}: {}", signed.text);
        // Frames and their ids are the same, but for the signatures.
        let frames = |text: &str| text[text.find("data: ").unwrap()..].to_owned();
        let is_stream = plain.header("content-type").starts_with("text/event-stream");
        let (plain, signed) =
            if is_stream { (frames(&plain.text), frames(&signed.text)) } else { (plain.text, signed.text) };
        assert_eq!(without_signatures(&signed), plain, "{path}");
        assert_eq!(signed.contains("?user=ann&"), plain.contains("\"/v1/blobs/"), "{path}");
    }
    // A plain viewer and a signed one share frames, at the same time.
    let (mut one, mut other) = (
        hw.open_stream(&format!("/v1/threads/{thread}/events")).await,
        hw.open_stream(&format!("/v1/threads/{thread}/events?blobs=signed")).await,
    );
    let (plain, signed) = (one.read_until("task.completed").await, other.read_until("task.completed").await);
    assert!(!plain.contains("?user=") && signed.contains("?user=ann&"));
    assert_eq!(fetch_status(&hw, &signed_url(signed)).await, 200);
    let ids = |text: &str| parse_frames(text).into_iter().map(|frame| frame.id).collect::<Vec<_>>();
    assert_eq!(ids(signed), ids(plain));

    let key = create_key(&hw, "ann");
    let headers = format!("Authorization: Bearer {key}\r\n");
    let mut socket = Socket::connect_to(&hw, "/ws?blobs=signed", &headers).await.unwrap();
    socket.send_json(&json!({"type": "chat", "session_id": "pictures", "content": "image"})).await;
    let turn = json!(socket.read_until("message_stop").await).to_string();
    assert_eq!(fetch_status(&hw, &signed_url(&turn)).await, 200);
}

#[tokio::test]
async fn a_viewers_signed_url_ends_with_the_share() {
    let (hw, thread, task) = ann_with_images("").await;
    let share = hw.post(&format!("/v1/threads/{thread}/shares"), json!({"mode": "live"})).await.json();
    let token = format!("Bearer {}", str_field(&share, "token"));
    let path = hw.url(&format!("/v1/tasks/{task}?blobs=signed"));
    let seen = http_client().get(path).header("authorization", token).send().await.unwrap().text().await.unwrap();
    let url = signed_url(&seen);
    assert!(!url.contains("ann"), "the owner's name is not shown: {url}");
    assert_eq!(fetch_status(&hw, &url).await, 200);
    let path = format!("/v1/threads/{thread}/shares/{}", str_field(&share, "share_id"));
    assert_eq!(hw.request(Method::DELETE, &path, &[], None).await.status, 204);
    assert_eq!(fetch_status(&hw, &url).await, 404);
}

#[tokio::test]
async fn the_server_can_sign_by_default_and_signatures_expire() {
    let (hw, _, task) = ann_with_images("[files]\nsigned_blobs = true\nsigned_url_seconds = 2").await;
    let url = signed_url(&hw.get(&format!("/v1/tasks/{task}")).await.text);
    assert!(!hw.get(&format!("/v1/tasks/{task}?blobs=plain")).await.text.contains("?user="));
    assert_eq!(fetch_status(&hw, &url).await, 200);
    hw.wait_until("the URL has expired", async || fetch_status(&hw, &url).await == 410).await;
}

/// A server on which Ann's agent calls a tool with the URL of her image, and then says that URL in a sentence.
fn server_that_passes_an_image_on(image: &str, more: &str) -> Server {
    let config = format!(
        "{KEYS}\n[agents.a]\nmodel = \"mine/a\"\ntools = [\"look\"]\n[tools.look]\nkind = \"command\"\ncommand = \"cat\"\n\
         [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n{more}"
    );
    let scenarios = format!(
        "[[scenario]]\n[[scenario.turn]]\nsteps = [{{ call = \"look\", arguments = '{{\"picture\":\"{image}\"}}' }}]\n\
         [[scenario.turn]]\nsteps = [{{ text = \"See {image}.\" }}]\n"
    );
    let hw = Server::with_config(&config, &scenarios);
    let key = create_key(&hw, "ann");
    hw.with_key(&key)
}

/// In these protocols an image of a message is a word of the text, which is not signed; a call's argument is a member.
#[tokio::test]
async fn messages_and_chat_sign_members_and_leave_texts_alone() {
    let png = unique_png("input");
    let image = blob_path(&png);
    let hw = server_that_passes_an_image_on(&image, "");
    let source = json!({"type": "base64", "media_type": "image/png", "data": STANDARD.encode(&png)});
    let content = json!([{"type": "image", "source": source}, {"type": "text", "text": "go"}]);
    let messages = json!([{"role": "user", "content": content}]);
    for stream in [false, true] {
        let body = json!({"model": "a", "max_tokens": 100, "stream": stream, "messages": messages});
        let (plain, signed) =
            (hw.post("/v1/messages", body.clone()).await, hw.post("/v1/messages?blobs=signed", body).await);
        assert_eq!((plain.status, signed.status), (200, 200), "{}", signed.text);
        assert!(!plain.text.contains("?user="), "{}", plain.text);
        assert_eq!(signed.text.matches("?user=ann&").count(), 1, "the argument and nothing else: {}", signed.text);
        assert!(signed.text.contains(&format!("\"input\":{{\"picture\":\"{image}?user=ann&")), "{}", signed.text);
        assert!(signed.text.contains(&format!("See {image}.")), "{}", signed.text);
        assert_eq!(fetch_status(&hw, &signed_url(&signed.text)).await, 200);

        let url = json!({"type": "image_url", "image_url": {"url": data_url("image/png", &png)}});
        let messages = json!([{"role": "user", "content": [url, {"type": "text", "text": "go"}]}]);
        let body = json!({"model": "a", "stream": stream, "messages": messages});
        let signed = hw.post("/v1/chat/completions?blobs=signed", body).await;
        assert_eq!(signed.status, 200, "{}", signed.text);
        assert!(signed.text.contains(&format!("See {image}.")), "it has no member with a URL: {}", signed.text);
    }
}

/// `headwater replay` shows what is recorded, also where the server signs by default.
#[tokio::test]
async fn a_replay_is_not_signed() {
    let png = unique_png("input");
    let hw = server_that_passes_an_image_on(&blob_path(&png), "[files]\nsigned_blobs = true");
    let input = json!([image_part(&png), {"type": "text", "text": "go"}]);
    let task = hw.post("/v1/tasks", json!({"model": "a", "input": input, "wait": true})).await;
    let events = hw.get(&format!("/v1/tasks/{}/events", str_field(&task.json(), "task_id"))).await.text;
    assert!(events.contains("?user=ann&"), "{events}");
    for protocol in ["task", "run-items", "responses", "blocks", "agent-runs", "messages", "chat"] {
        let output = hw.run_cli(&["replay", str_field(&task.json(), "task_id"), "--as", protocol, "--fast"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(&blob_path(&png)), "{protocol}: {text}");
        assert!(!text.contains("?user=") && !text.contains("signature="), "{protocol}: {text}");
    }
}
