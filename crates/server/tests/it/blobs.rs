//! Blobs of threads: served by hash, shared with their thread, deleted with the last thread that uses them.

mod deleted;
mod signed_urls;
mod verify;

use crate::attachments::{signed_path, stored_files, str_field, upload_file};
use crate::auth::create_key;
use crate::documents::file_server::{FileServer, PageResponse};
use crate::harness::{Reply, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use model_testing::{Rng, test_seeds};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const KEYS: &str = "[auth]\nmode = \"keys\"";

/// An image with unique bytes.
pub(crate) fn unique_png(name: &str) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0", name.as_bytes()].concat()
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn blob_path(bytes: &[u8]) -> String {
    format!("/v1/blobs/{}", sha256_hex(bytes))
}

pub(crate) fn data_url(kind: &str, bytes: &[u8]) -> String {
    format!("data:{kind};base64,{}", STANDARD.encode(bytes))
}

/// An image as an input part.
pub(crate) fn image_part(bytes: &[u8]) -> Value {
    json!({"type": "image_url", "image_url": {"url": data_url("image/png", bytes)}})
}

/// An uploaded file as an input part.
pub(crate) fn file_part(file: &Value) -> Value {
    json!({"type": "file", "file": {"bucket": file["bucket"], "path": file["path"]}})
}

/// Sends these parts to a new or an existing thread, waits for the answer, and returns the thread.
async fn run_with_parts(hw: &Server, thread: Option<&str>, parts: &[Value]) -> String {
    let input: Vec<Value> = parts.iter().cloned().chain([json!({"type": "text", "text": "story 1 fast"})]).collect();
    let body = json!({"model": "demo", "input": input, "thread_id": thread, "wait": true});
    let reply = hw.post("/v1/tasks", body).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("completed")), "{}", reply.text);
    str_field(&reply.json(), "thread_id").to_owned()
}

async fn delete(hw: &Server, thread: &str) {
    assert_eq!(hw.request(Method::DELETE, &format!("/v1/threads/{thread}"), &[], None).await.status, 204);
}

async fn fetch(hw: &Server, path: &str, headers: &[(&str, &str)]) -> (u16, reqwest::header::HeaderMap, Vec<u8>) {
    let mut request = hw.client.get(hw.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.headers().clone(), response.bytes().await.unwrap().to_vec())
}

#[tokio::test]
async fn a_blob_is_served_unchanged_and_can_be_cached() {
    let hw = Server::demo();
    let bytes = unique_png("mine");
    run_with_parts(&hw, None, &[image_part(&bytes)]).await;
    let (path, tag) = (blob_path(&bytes), format!("\"{}\"", sha256_hex(&bytes)));
    let (status, headers, body) = fetch(&hw, &path, &[]).await;
    assert!(status == 200 && body == bytes, "{status}");
    for (name, value) in [
        ("content-type", "image/png"),
        ("content-length", bytes.len().to_string().as_str()),
        ("etag", &tag),
        ("cache-control", "private, max-age=31536000, immutable"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("accept-ranges", "bytes"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(headers["content-disposition"].to_str().unwrap().starts_with("inline; "));

    let (status, headers, body) = fetch(&hw, &path, &[("if-none-match", &tag)]).await;
    assert_eq!((status, body.len(), headers["etag"].to_str().unwrap()), (304, 0, tag.as_str()));
    let (status, headers, body) = fetch(&hw, &path, &[("range", "bytes=1-3"), ("if-range", &tag)]).await;
    assert_eq!((status, body.as_slice()), (206, &b"PNG"[..]));
    assert_eq!(headers["content-range"], format!("bytes 1-3/{}", bytes.len()));
    let (status, _, body) = fetch(&hw, &path, &[("range", "bytes=1-3"), ("if-range", "\"other\"")]).await;
    assert!(status == 200 && body == bytes, "{status}");
    assert_eq!(fetch(&hw, &path, &[("range", "bytes=99999-")]).await.0, 416);
    let head = hw.request(Method::HEAD, &path, &[], None).await;
    assert_eq!((head.status, head.header("content-length")), (200, bytes.len().to_string().as_str()));
    assert_eq!(hw.get(&format!("{path}?x=1")).await.problem(), (422, "invalid_query".to_owned()));
}

#[tokio::test]
async fn active_content_in_a_blob_is_inert() {
    let hw = Server::demo();
    let page = b"<!DOCTYPE html><script>alert(1)</script>";
    let url = data_url("text/html", page);
    run_with_parts(&hw, None, &[json!({"type": "file", "file": {"url": url, "name": "a\r\nb\".html"}})]).await;
    let (status, headers, body) = fetch(&hw, &blob_path(page), &[]).await;
    assert!(status == 200 && body == page, "{status}");
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(headers["content-security-policy"], "sandbox; default-src 'none'");
    assert!(headers["content-disposition"].to_str().unwrap().starts_with("attachment; filename=\"ab_.html\""));
}

#[tokio::test]
async fn an_invalid_or_foreign_blob_url_is_not_found() {
    let hw = Server::demo_with(KEYS);
    let keys = [create_key(&hw, "ann"), create_key(&hw, "ben")];
    let hw = hw.with_key(&keys[0]);
    let (hers, both) = (unique_png("hers"), unique_png("both"));
    let thread = run_with_parts(&hw, None, &[image_part(&hers), image_part(&both)]).await;
    assert_eq!(hw.get(&blob_path(&hers)).await.status, 200);
    let hex = sha256_hex(&hers);
    for path in [
        hex.to_uppercase(),
        hex[..63].to_owned(),
        format!("{hex}0"),
        format!("%2e%2e%2f{hex}"),
        format!("{}é", &hex[..62]),
        "0".repeat(64),
    ] {
        assert_eq!(hw.get(&format!("/v1/blobs/{path}")).await.problem(), (404, "not_found".to_owned()), "{path}");
    }
    let hw = hw.with_key(&keys[1]);
    let missing = hw.get(&format!("/v1/blobs/{}", "0".repeat(64))).await;
    let foreign = hw.get(&blob_path(&hers)).await;
    assert_eq!((foreign.status, foreign.text), (404, missing.text), "the same words");
    // Another user with the same bytes has a separate blob.
    run_with_parts(&hw, None, &[image_part(&both)]).await;
    let hw = hw.with_key(&keys[0]);
    delete(&hw, &thread).await;
    assert_eq!(hw.get(&blob_path(&both)).await.status, 404);
    let hw = hw.with_key(&keys[1]);
    assert_eq!(hw.get(&blob_path(&both)).await.status, 200);
}

#[tokio::test]
async fn unused_blobs_are_deleted_and_used_ones_stay() {
    let mut hw = Server::demo();
    let (both, one) = (unique_png("both"), unique_png("one"));
    let (used, loose) = (upload_file(&hw, "", b"used").await, upload_file(&hw, "", b"loose").await);
    let first =
        run_with_parts(&hw, None, &[image_part(&both), image_part(&one), image_part(&one), file_part(&used)]).await;
    let second = run_with_parts(&hw, None, &[image_part(&both)]).await;
    assert_eq!(stored_files(&hw).len(), 4, "each is there once");
    delete(&hw, &first).await;
    // Immediately: the response waits for it.
    assert_eq!(stored_files(&hw).len(), 2);
    assert_eq!((hw.get(&blob_path(&both)).await.status, hw.get(&blob_path(&one)).await.status), (200, 404));
    let signed =
        async |file: &Value| hw.get(&signed_path(str_field(file, "bucket"), str_field(file, "path"))).await.status;
    assert_eq!((signed(&loose).await, signed(&used).await), (200, 404));
    // The same bytes can be stored again.
    let third = run_with_parts(&hw, None, &[image_part(&one)]).await;
    assert_eq!(hw.get(&blob_path(&one)).await.status, 200);
    delete(&hw, &second).await;
    delete(&hw, &third).await;
    assert_eq!(stored_files(&hw), [hw.data_dir().join("files").join(str_field(&loose, "path"))]);
    assert_eq!(
        verify::kill_and_run_verify(&mut hw, &[]),
        (Some(0), verify::undamaged_report(&["1 files", "0 threads, 0 runs, 0 records"]))
    );
}

#[tokio::test]
async fn a_thread_is_deleted_even_if_its_bytes_cannot_be_removed_yet() {
    let mut hw = Server::demo();
    let bytes = unique_png("stuck");
    let thread = run_with_parts(&hw, None, &[image_part(&bytes)]).await;
    // A directory cannot be removed as a file, even by root.
    let place = stored_files(&hw).remove(0);
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("x"), "x").unwrap();
    delete(&hw, &thread).await;
    assert_eq!(hw.get(&blob_path(&bytes)).await.status, 404);
    assert!(hw.log().contains("waits for the next start"), "{}", hw.log());
    assert!(place.exists());
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::write(&place, &bytes).unwrap();
    hw.kill9();
    hw.restart();
    assert!(!place.exists(), "the next start removes it");
    assert_eq!(verify::kill_and_run_verify(&mut hw, &[]).0, Some(0));
}

/// Runs that generate the same images and have one of their own, each deleted at another moment.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_threads_at_any_moment_leaves_no_bytes() {
    let mut hw = Server::demo_that_draws("");
    let one = async |seed: u64| {
        let mut rng = Rng::new(seed);
        let input = json!([image_part(&unique_png(&seed.to_string())), {"type": "text", "text": "image"}]);
        let task = hw.create_task(json!({"model": "demo", "input": input})).await;
        let thread = str_field(&task, "thread_id");
        let mut events = hw.open_stream(&format!("/v1/threads/{thread}/events")).await;
        events.read_until(&format!("\"seq\":{}", 1 + rng.below(16))).await;
        delete(&hw, thread).await;
    };
    join_all(test_seeds().take(24).map(one)).await;
    hw.wait_until("nothing is left of them", async || stored_files(&hw).is_empty()).await;
    let (code, said) = verify::kill_and_run_verify(&mut hw, &[]);
    assert_eq!((code, said.lines().next()), (Some(0), Some("0 files")), "{said}");
}

/// A viewer of a share.
async fn viewer_status(hw: &Server, token: &str, path: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    hw.request(Method::GET, path, &[("authorization", &bearer)], None).await.status
}

async fn share(hw: &Server, thread: &str, mode: &str) -> Reply {
    hw.post(&format!("/v1/threads/{thread}/shares"), json!({"mode": mode})).await
}

#[tokio::test]
async fn a_share_gives_access_to_the_blobs_of_its_visible_part() {
    let hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    let hw = hw.with_key(&ann);
    let (early, late, other) = (unique_png("early"), unique_png("late"), unique_png("other"));
    let thread = run_with_parts(&hw, None, &[image_part(&early)]).await;
    run_with_parts(&hw, None, &[image_part(&other)]).await;
    let frozen = share(&hw, &thread, "frozen").await.json();
    let live = share(&hw, &thread, "live").await.json();
    run_with_parts(&hw, Some(&thread), &[image_part(&late)]).await;
    for (share, wanted) in [(&frozen, [200, 404, 404]), (&live, [200, 200, 404])] {
        let mut got = Vec::new();
        for bytes in [&early, &late, &other] {
            got.push(viewer_status(&hw, str_field(share, "token"), &blob_path(bytes)).await);
        }
        assert_eq!(got, wanted, "{}", share["mode"]);
    }
    let gone = format!("/v1/threads/{thread}/shares/{}", str_field(&live, "share_id"));
    assert_eq!(hw.request(Method::DELETE, &gone, &[], None).await.status, 204);
    assert_eq!(viewer_status(&hw, str_field(&live, "token"), &blob_path(&early)).await, 401);
    delete(&hw, &thread).await;
    assert_eq!(viewer_status(&hw, str_field(&frozen, "token"), &blob_path(&early)).await, 401);
}

#[tokio::test]
async fn a_share_gives_access_to_a_file_added_during_the_run() {
    let hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    let hw = hw.with_key(&ann);
    let (first, later, never) = (
        upload_file(&hw, "", b"first").await,
        upload_file(&hw, "", b"later").await,
        upload_file(&hw, "", b"never").await,
    );
    let input = json!([file_part(&first), {"type": "text", "text": "story 2000"}]);
    let task = hw.create_task(json!({"model": "demo", "input": input})).await;
    let (id, thread) = (str_field(&task, "task_id"), str_field(&task, "thread_id"));
    hw.open_stream(&format!("/v1/tasks/{id}/events")).await.read_until("task.text.delta").await;
    let frozen = share(&hw, thread, "frozen").await.json();
    let live = share(&hw, thread, "live").await.json();
    // Text alone, even with the path, links no file to a thread.
    let words = json!([file_part(&later), {"type": "text", "text": str_field(&never, "path")}]);
    let said = hw.post(&format!("/v1/tasks/{id}/input"), json!({"input": words})).await;
    assert_eq!(said.status, 202, "{}", said.text);
    hw.open_stream(&format!("/v1/tasks/{id}/events")).await.read_until("task.input.added").await;
    let asks = |file: &Value| signed_path(str_field(file, "bucket"), str_field(file, "path"));
    for (share, wanted) in [(&frozen, [200, 404, 404]), (&live, [200, 200, 404])] {
        let mut got = Vec::new();
        for file in [&first, &later, &never] {
            got.push(viewer_status(&hw, str_field(share, "token"), &asks(file)).await);
        }
        assert_eq!(got, wanted, "{}", share["mode"]);
    }
}

#[tokio::test]
async fn files_read_for_the_model_are_shared_and_forked_with_the_thread() {
    let (early, late) = (unique_png("early"), unique_png("late"));
    let page = |bytes: &[u8]| PageResponse::File("image/png", bytes.to_vec().into());
    let web = FileServer::start("127.0.0.1:0", [("/early.png", page(&early)), ("/late.png", page(&late))]).await;
    let hw = Server::demo_with(&format!("{KEYS}\n[fetch]\nallow_private = true\nports = [{}]", web.address.port()));
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let hw = hw.with_key(&ann);
    let file = |path: &str| json!({"type": "file", "file": {"url": web.url(path)}});
    let thread = run_with_parts(&hw, None, &[file("/early.png")]).await;
    let frozen = share(&hw, &thread, "frozen").await.json();
    run_with_parts(&hw, Some(&thread), &[file("/late.png")]).await;
    let token = str_field(&frozen, "token");
    assert_eq!(
        (viewer_status(&hw, token, &blob_path(&early)).await, viewer_status(&hw, token, &blob_path(&late)).await),
        (200, 404)
    );
    let hw = hw.with_key(&ben);
    let go_on = json!({"model": "demo", "input": "story 1 fast", "share": token, "wait": true});
    assert_eq!(hw.post("/v1/tasks", go_on).await.status, 200);
    assert_eq!((hw.get(&blob_path(&early)).await.status, hw.get(&blob_path(&late)).await.status), (200, 404));
}
