//! Uploaded files: upload, download by signed URL, and every abuse of either.

mod slow;

use crate::auth::{create_key, live_key_id};
use crate::harness::{Reply, Server, TEST_TIMEOUT, http_client};
use flate2::{Compress, Compression, FlushCompress};
use futures_util::stream::{self, StreamExt as _};
use reqwest::Method;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ROUTE: &str = "/api/v1/agent/attachments";
const KEYS: &str = "[auth]\nmode = \"keys\"";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

async fn post_file(hw: &Server, query: &str, kind: &str, bytes: &[u8]) -> Reply {
    hw.request(Method::POST, &format!("{ROUTE}{query}"), &[("content-type", kind)], Some(bytes.to_vec())).await
}

pub(crate) async fn upload_file(hw: &Server, query: &str, bytes: &[u8]) -> Value {
    let reply = post_file(hw, query, "application/octet-stream", bytes).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.json()
}

pub(crate) fn str_field<'a>(file: &'a Value, name: &str) -> &'a str {
    file[name].as_str().unwrap()
}

pub(crate) fn signed_path(bucket: &str, path: &str) -> String {
    format!("{ROUTE}/signed-url?bucket={bucket}&path={path}")
}

async fn signed_url(hw: &Server, file: &Value) -> String {
    let reply = hw.get(&signed_path(str_field(file, "bucket"), str_field(file, "path"))).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    assert_eq!((&answer["bucket"], &answer["path"]), (&file["bucket"], &file["path"]));
    str_field(&answer, "url").to_owned()
}

/// A request with a signed URL and no other credentials.
async fn fetch_bytes(url: &str, headers: &[(&str, &str)]) -> (u16, reqwest::header::HeaderMap, Vec<u8>) {
    let mut request = http_client().get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.bytes().await.unwrap().to_vec())
}

/// Every file below a folder; none if the folder does not exist.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

pub(crate) fn stored_files(hw: &Server) -> Vec<PathBuf> {
    files_below(&hw.data_dir().join("files"))
}

#[tokio::test]
async fn a_file_is_uploaded_and_downloaded_by_a_signed_url() {
    let hw = Server::demo();
    let file = upload_file(&hw, "?name=pic.png", PNG).await;
    assert_eq!(
        (str_field(&file, "bucket"), str_field(&file, "name"), str_field(&file, "contentType")),
        ("headwater", "pic.png", "image/png")
    );
    assert_eq!(file["size"], PNG.len());
    let path = str_field(&file, "path");
    assert!(path.starts_with("agent-inputs/local/") && path.ends_with(".png"), "{path}");
    let url = signed_url(&hw, &file).await;
    assert!(url.starts_with(&hw.url(ROUTE)), "{url}");
    // Any number of times while the URL is valid.
    for _ in 0..2 {
        let (status, headers, bytes) = fetch_bytes(&url, &[]).await;
        assert_eq!((status, bytes.as_slice()), (200, PNG));
        assert_eq!(headers["content-type"], "image/png");
        assert_eq!(headers["content-disposition"], "inline; filename=\"pic.png\"; filename*=UTF-8''pic.png");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["content-security-policy"], "sandbox; default-src 'none'");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert!(headers["cache-control"].to_str().unwrap().starts_with("private, max-age="));
    }
    assert!(http_client().head(&url).send().await.unwrap().status().is_success());
}

#[tokio::test]
async fn a_multipart_form_with_one_file_works_alike() {
    let hw = Server::demo();
    let part = |name: &str, file: &str, body: &str| {
        format!(
            "--B\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\nContent-Type: text/csv\r\n\r\n{body}\r\n"
        )
    };
    let form = "multipart/form-data; boundary=B";
    let good = part("file", "; filename=\"t\u{fc}.csv\"", "a,b\n1,2") + "--B--\r\n";
    let reply = post_file(&hw, "", form, good.as_bytes()).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    let file = reply.json();
    assert_eq!(
        (str_field(&file, "name"), str_field(&file, "contentType"), file["size"].as_u64()),
        ("t\u{fc}.csv", "text/csv", Some(7))
    );
    let (_, headers, bytes) = fetch_bytes(&signed_url(&hw, &file).await, &[]).await;
    assert_eq!(
        (headers["content-type"].to_str().unwrap(), bytes.as_slice()),
        ("text/csv; charset=utf-8", &b"a,b\n1,2"[..])
    );
    assert!(headers["content-disposition"].to_str().unwrap().starts_with("attachment; "));

    // Encoded names, as some clients send non-ASCII characters.
    let encoded = part("file", "; filename*=utf-8''t%C3%BC.csv", "a,b") + "--B--\r\n";
    let reply = post_file(&hw, "", form, encoded.as_bytes()).await;
    assert_eq!((reply.status, str_field(&reply.json(), "name")), (201, "t\u{fc}.csv"), "{}", reply.text);

    let two = part("a", "; filename=\"a\"", "x") + &part("b", "; filename=\"b\"", "y") + "--B--\r\n";
    let cut = part("a", "; filename=\"a\"", "x");
    for (kind, body, status, code) in [
        (form, two, 422, "invalid_form"),
        (form, part("a", "", "x") + "--B--\r\n", 422, "invalid_form"),
        (form, "--B--\r\n".to_owned(), 422, "invalid_form"),
        (form, part("a", "; filename=\"a\"", "") + "--B--\r\n", 422, "empty_file"),
        (form, cut, 400, "invalid_framing"),
        (form, "no form at all".to_owned(), 400, "invalid_framing"),
        ("multipart/form-data; x=y", good.clone(), 422, "invalid_form"),
        ("multipart/form-data", good, 422, "invalid_form"),
    ] {
        assert_eq!(post_file(&hw, "", kind, body.as_bytes()).await.problem(), (status, code.to_owned()), "{body}");
    }
    assert_eq!(stored_files(&hw).len(), 2);
}

#[tokio::test]
async fn the_type_of_a_file_comes_from_its_bytes_and_active_content_is_inert() {
    let hw = Server::demo();
    for (declared, bytes) in [
        ("text/html", &b"<!DOCTYPE html><script>alert(1)</script>"[..]),
        ("image/svg+xml", b"<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"alert(1)\"/>"),
        ("image/gif", b"GIF89a=1;alert(1)//"),
        ("image/png", b"plain words"),
    ] {
        let reply = post_file(&hw, "?name=x.html", declared, bytes).await.json();
        assert_eq!(str_field(&reply, "contentType"), "text/plain", "{declared}");
        let (status, headers, _) = fetch_bytes(&signed_url(&hw, &reply).await, &[]).await;
        assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, "text/plain; charset=utf-8"));
        assert!(headers["content-disposition"].to_str().unwrap().starts_with("attachment; "));
    }
    let odd = upload_file(&hw, "?name=..%2F%22a%0D%0AX-Evil%3A1.png", PNG).await;
    assert_eq!(str_field(&odd, "name"), "\"aX-Evil:1.png");
    let (_, headers, _) = fetch_bytes(&signed_url(&hw, &odd).await, &[]).await;
    assert!(headers.get("x-evil").is_none());
    let long = upload_file(&hw, &format!("?name={}", "n".repeat(300)), PNG).await;
    assert_eq!(str_field(&long, "name").len(), 200);
}

#[tokio::test]
async fn a_signed_url_cannot_be_changed_and_expires() {
    let hw = Server::demo_with("[files]\nsigned_url_seconds = 1");
    let (file, other) = (upload_file(&hw, "", PNG).await, upload_file(&hw, "", b"other").await);
    let url = signed_url(&hw, &file).await;
    let expires = url.split("expires=").nth(1).unwrap().split('&').next().unwrap();
    let later = (expires.parse::<u64>().unwrap() + 100).to_string();
    for altered in [
        url.replace(expires, &later),
        url.replace(expires, "253402300799"),
        url.replace(expires, &format!("0{expires}")),
        url.replace(expires, &format!("%2B{expires}")),
        url.replace(expires, ""),
        url.replace(str_field(&file, "path"), str_field(&other, "path")),
        url.split("&signature").next().unwrap().to_owned(),
        format!("{url}0"),
        format!("{url}00"),
        url.split_at(url.len() - 2).0.to_owned(),
        format!("{}{}", url.split_at(url.len() - 1).0, if url.ends_with('0') { '1' } else { '0' }),
        url.replace("signature=", "signature=x"),
    ] {
        let (status, _, body) = fetch_bytes(&altered, &[]).await;
        let code = serde_json::from_slice::<Value>(&body).unwrap()["code"].as_str().unwrap().to_owned();
        assert_eq!((status, code.as_str()), (403, "url_not_valid"), "{altered}");
    }
    for (altered, status) in
        [(url.replace("bucket=headwater", "bucket=other"), 404), (format!("{url}&bucket=headwater"), 422)]
    {
        assert_eq!(fetch_bytes(&altered, &[]).await.0, status, "{altered}");
    }
    hw.wait_until("the address is good no more", async || fetch_bytes(&url, &[]).await.0 == 410).await;
}

#[tokio::test]
async fn a_path_of_another_user_is_refused() {
    let hw = Server::demo_with(KEYS);
    let keys = [create_key(&hw, "u1"), create_key(&hw, "u10")];
    let hw = hw.with_key(&keys[1]);
    let theirs = upload_file(&hw, "", PNG).await;
    let hw = hw.with_key(&keys[0]);
    let mine = upload_file(&hw, "", PNG).await;
    let id = str_field(&mine, "path").rsplit('/').next().unwrap().to_owned();
    let their_id = str_field(&theirs, "path").rsplit('/').next().unwrap().to_owned();
    assert_eq!(hw.get(&signed_path("headwater", str_field(&mine, "path"))).await.status, 200);
    for (path, status, code) in [
        (format!("agent-inputs/u10/{their_id}"), 404, "not_found"),
        (format!("agent-inputs/u1/{their_id}"), 404, "not_found"),
        ("agent-inputs/u1".to_owned(), 404, "not_found"),
        ("agent-inputs/u1/".to_owned(), 400, "invalid_path"),
        (format!("agent-inputs/u1/../u10/{their_id}"), 400, "invalid_path"),
        (format!("agent-inputs/u1/%2e%2e%2fu10/{their_id}"), 400, "invalid_path"),
        (format!("agent-inputs/u1/%252e%252e%252fu10%252f{their_id}"), 400, "invalid_path"),
        (format!("agent-inputs/%252e%252e/{id}"), 400, "invalid_path"),
        (format!("agent-inputs/u1/..%c0%af{id}"), 400, "invalid_path"),
        (format!("agent-inputs/%EF%BC%8E%EF%BC%8E%EF%BC%8F/{id}"), 400, "invalid_path"),
        (format!("agent-inputs/u1/{id}%00.png"), 400, "invalid_path"),
        (format!("%2Fagent-inputs/u1/{id}"), 400, "invalid_path"),
        ("/etc/passwd".to_owned(), 400, "invalid_path"),
        ("C:%5Cx".to_owned(), 400, "invalid_path"),
        ("%5C%5Csrv%5Cshare".to_owned(), 400, "invalid_path"),
        ("file:///etc/passwd".to_owned(), 400, "invalid_path"),
        (String::new(), 400, "invalid_path"),
    ] {
        let reply = hw.get(&signed_path("headwater", &path)).await;
        assert_eq!(reply.problem(), (status, code.to_owned()), "{path}");
    }
    for bucket in ["", "Headwater", "headwater2", "other"] {
        let reply = hw.get(&signed_path(bucket, str_field(&mine, "path"))).await;
        assert_eq!(reply.problem(), (404, "bucket_not_found".to_owned()), "{bucket}");
    }
    for query in ["", "?bucket=headwater", "?path=x", "?bucket=headwater&path=x&path=y", "?bucket=headwater&path=x&z=1"]
    {
        assert_eq!(hw.get(&format!("{ROUTE}/signed-url{query}")).await.problem().0, 422, "{query}");
    }
    let nobody = [("authorization", "Bearer hw_nobody")];
    assert_eq!(hw.request(Method::POST, ROUTE, &nobody, Some(PNG.to_vec())).await.status, 401);
    assert_eq!(
        hw.request(Method::GET, &signed_path("headwater", str_field(&mine, "path")), &nobody, None).await.status,
        401
    );
    assert_eq!(stored_files(&hw).len(), 2);
}

#[tokio::test]
async fn a_signed_url_of_a_deleted_file_or_user_is_not_found() {
    let hw = Server::demo_with(KEYS);
    let ann = create_key(&hw, "ann");
    let hw = hw.with_key(&ann);
    let (file, gone, link) =
        (upload_file(&hw, "", PNG).await, upload_file(&hw, "", b"gone").await, upload_file(&hw, "", b"link").await);
    let urls = [signed_url(&hw, &file).await, signed_url(&hw, &gone).await, signed_url(&hw, &link).await];
    let place = |file: &Value| hw.data_dir().join("files").join(str_field(file, "path"));
    std::fs::remove_file(place(&gone)).unwrap();
    std::fs::remove_file(place(&link)).unwrap();
    std::os::unix::fs::symlink(hw.path("headwater.toml"), place(&link)).unwrap();
    assert_eq!(fetch_bytes(&urls[0], &[]).await.0, 200);
    assert_eq!(fetch_bytes(&urls[1], &[]).await.0, 404);
    assert_eq!(fetch_bytes(&urls[2], &[]).await.0, 404, "a link is no file");
    assert!(hw.run_cli(&["keys", "revoke", &live_key_id(&hw, "ann")]).status.success());
    assert_eq!(fetch_bytes(&urls[0], &[]).await.0, 404, "whoever was let in is not any more");
}

#[tokio::test]
async fn a_range_of_a_file_can_be_requested() {
    let hw = Server::demo();
    let url = signed_url(&hw, &upload_file(&hw, "", b"0123456789").await).await;
    let many = format!("bytes={}", vec!["0-"; 2_000].join(","));
    for (range, status, body, told) in [
        ("bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("bytes=-2", 206, "89", "bytes 8-9/10"),
        ("bytes=7-999", 206, "789", "bytes 7-9/10"),
        ("bytes=5-2", 200, "0123456789", ""),
        ("bytes=0-1,4-5", 200, "0123456789", ""),
        (many.as_str(), 200, "0123456789", ""),
    ] {
        let (got, headers, bytes) = fetch_bytes(&url, &[("range", range)]).await;
        let content_range = headers.get("content-range").map_or("", |value| value.to_str().unwrap());
        assert_eq!((got, bytes.as_slice(), content_range), (status, body.as_bytes(), told), "{range:.30}");
        assert_eq!(headers["content-length"].to_str().unwrap(), body.len().to_string());
    }
    let (status, headers, _) = fetch_bytes(&url, &[("range", "bytes=10-")]).await;
    assert_eq!((status, headers["content-range"].to_str().unwrap()), (416, "bytes */10"));
    // Ranges apply to GET only.
    for range in ["bytes=2-4", "bytes=10-"] {
        let about = http_client().head(&url).header("range", range).send().await.unwrap();
        assert_eq!((about.status().as_u16(), about.headers()["content-length"].to_str().unwrap()), (200, "10"));
    }
}

#[tokio::test]
async fn an_oversized_upload_is_refused_and_leaves_nothing() {
    let hw =
        Server::demo_with("[files]\nupload_bytes_max = 300000\nuser_bytes_max = 650000\n[limits]\nbody_read_ms = 300");
    let most = vec![b'x'; 300_000];
    let first = post_file(&hw, "", "text/plain", &most).await;
    assert_eq!((first.status, first.json()["size"].as_u64()), (201, Some(300_000)));
    let more = vec![b'x'; 300_001];
    assert_eq!(post_file(&hw, "", "text/plain", &more).await.problem(), (413, "body_too_large".to_owned()));
    assert_eq!(post_file(&hw, "", "text/plain", b"").await.problem(), (422, "empty_file".to_owned()));
    let zipped = [("content-encoding", "gzip")];
    let reply = hw.request(Method::POST, ROUTE, &zipped, Some(b"x".to_vec())).await;
    assert_eq!(reply.problem(), (415, "unsupported_encoding".to_owned()));
    let head = format!("POST {ROUTE} HTTP/1.1\r\nHost: localhost\r\n");
    // Chunked, without an announced end.
    let endless = [head.as_bytes(), b"Transfer-Encoding: chunked\r\n\r\n"].concat();
    let endless = [endless, b"10000\r\n".to_vec(), vec![b'y'; 0x10000], b"\r\n".to_vec()].concat();
    let endless = [endless, [b"10000\r\n".to_vec(), vec![b'y'; 0x10000], b"\r\n".to_vec()].concat().repeat(5)].concat();
    assert!(hw.send_raw(endless).await.starts_with("HTTP/1.1 413 "));
    // A wrong length, and one that never arrives.
    let lie = [head.as_bytes(), b"Content-Length: 250000\r\n\r\n", &vec![b'y'; 100_000]].concat();
    assert!(hw.send_raw(&lie).await.starts_with("HTTP/1.1 408 "));
    let announced = [head.as_bytes(), b"Content-Length: 99999999999\r\n\r\n"].concat();
    assert!(hw.send_raw(announced).await.starts_with("HTTP/1.1 413 "));
    // The client disconnects in the middle.
    let mut gone = TcpStream::connect(&hw.address).await.unwrap();
    gone.write_all(&lie).await.unwrap();
    drop(gone);
    assert_eq!(post_file(&hw, "", "text/plain", &most).await.status, 201);
    let over = post_file(&hw, "", "text/plain", &vec![b'x'; 50_001]).await;
    assert_eq!(
        (over.problem(), over.json()["bytes_used"].as_u64()),
        ((413, "quota_exceeded".to_owned()), Some(600_000))
    );
    assert_eq!(post_file(&hw, "", "text/plain", &vec![b'x'; 50_000]).await.status, 201);
    assert_eq!(post_file(&hw, "", "text/plain", b"x").await.problem(), (413, "quota_exceeded".to_owned()));
    hw.wait_until("what was broken off is cleared away", async || stored_files(&hw).len() == 3).await;
}

#[tokio::test]
async fn an_endless_upload_is_aborted() {
    let hw = Server::demo_with("[limits]\nbody_read_ms = 150");
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    let head = format!("POST {ROUTE} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut answer, mut drops) = stream.into_split();
    let dripping = tokio::spawn(async move {
        let mut often = tokio::time::interval(Duration::from_millis(20));
        while drops.write_all(b"1\r\nx\r\n").await.is_ok() {
            often.tick().await;
        }
    });
    let mut said = String::new();
    // The connection may be reset while the last bytes are in flight.
    let _torn = tokio::time::timeout(TEST_TIMEOUT, answer.read_to_string(&mut said)).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    dripping.await.unwrap();
    assert_eq!(stored_files(&hw), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn the_quota_is_exact_under_concurrent_uploads() {
    let hw = Server::demo_with("[files]\nuser_bytes_max = 100000");
    let body = vec![b'x'; 9_000];
    let replies: Vec<Reply> =
        stream::iter(0..40).map(|_| post_file(&hw, "", "text/plain", &body)).buffer_unordered(20).collect().await;
    let taken = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!((taken, replies.iter().filter(|reply| reply.status == 413).count()), (11, 29));
    assert_eq!(stored_files(&hw).len(), 11);
}

/// The server's memory in use, in bytes.
fn peak_memory_bytes(hw: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", hw.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_files_fifty_at_a_time_need_little_memory() {
    let hw = Server::demo();
    upload_file(&hw, "", PNG).await;
    let before = peak_memory_bytes(&hw);
    let body = vec![b'x'; 1_000_000];
    let upload = |_| async { post_file(&hw, "", "text/plain", &body).await.status };
    let taken: Vec<u16> = stream::iter(0..1_000).map(upload).buffer_unordered(50).collect().await;
    assert!(taken.iter().all(|status| *status == 201), "{taken:?}");
    // Fifty of them are 50 MB; the server holds only parts of them.
    let grown = peak_memory_bytes(&hw).saturating_sub(before);
    assert!(grown < 60 * 1024 * 1024, "{grown} bytes");
    assert_eq!(stored_files(&hw).len(), 1_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_an_upload_leaves_nothing_partial() {
    let mut hw = Server::demo();
    let body = vec![b'x'; 1_000_000];
    let kept = upload_file(&hw, "", &body).await;
    let head = format!("POST {ROUTE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
    let mut open = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&hw.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body[..700_000]).await.unwrap();
        open.push(stream);
    }
    hw.wait_until("fifty files are half there", async || stored_files(&hw).len() == 51).await;
    hw.kill9();
    assert_eq!(stored_files(&hw).len(), 51);
    // Half of them in the state where the bytes are complete and the row is not.
    for partial in stored_files(&hw).iter().filter(|path| path.to_string_lossy().ends_with("#1")).step_by(2) {
        std::fs::rename(partial, partial.to_string_lossy().trim_end_matches("#1")).unwrap();
    }
    hw.restart();
    assert_eq!(stored_files(&hw), [hw.data_dir().join("files").join(str_field(&kept, "path"))]);
    assert_eq!(fetch_bytes(&signed_url(&hw, &kept).await, &[]).await.2, body);
}

#[tokio::test]
async fn a_signed_url_survives_a_restart_and_has_the_public_host() {
    let mut hw =
        Server::demo_with("[files]\nurl = \"elsewhere\"\nbucket = \"mine\"\npublic_url = \"https://agents.example/\"");
    let file = upload_file(&hw, "", PNG).await;
    assert_eq!(str_field(&file, "bucket"), "mine");
    let url = signed_url(&hw, &file).await;
    let rest = url.strip_prefix("https://agents.example/").unwrap().to_owned();
    hw.kill9();
    hw.restart();
    assert_eq!(fetch_bytes(&hw.url(&format!("/{rest}")), &[]).await.2, PNG);
    assert_eq!(files_below(&hw.path("elsewhere")).len(), 1);
    let secret = std::fs::metadata(hw.data_dir().join("files.key")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&secret.permissions()) & 0o777, 0o600);
}

/// A JPEG whose size comes after this many bytes of other segments.
fn jpeg(side: u16, before: usize) -> Vec<u8> {
    let mut jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec();
    for _ in 0..before / 60_000 {
        jpeg.extend([&b"\xff\xe2\xea\x62"[..], &[0; 60_000]].concat());
    }
    jpeg.extend([&b"\xff\xc0\0\x11\x08"[..], &side.to_be_bytes(), &side.to_be_bytes(), &[3; 12]].concat());
    jpeg
}

#[tokio::test]
async fn an_image_with_too_large_dimensions_is_refused() {
    let hw = Server::demo_with("[files]\npixels_max = 1000000");
    let png =
        |width: u32, height: u32| [&PNG[..16], &width.to_be_bytes(), &height.to_be_bytes(), b"\x08\x06\0\0\0"].concat();
    let bombs = [
        png(1_001, 1_000),
        png(40_000, 1),
        png(u32::MAX, u32::MAX),
        b"GIF89a\xff\xff\xff\xff\x80\0\0".to_vec(),
        b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff".to_vec(),
        jpeg(1_001, 0),
        // The type was determined long before, without objection.
        jpeg(60_000, 3_000_000),
    ];
    for bomb in &bombs {
        let reply = post_file(&hw, "", "image/png", bomb).await;
        assert_eq!(reply.problem(), (422, "image_too_large".to_owned()), "{:?}", &bomb[..20]);
        assert_eq!(reply.json()["pixels_max"], 1_000_000);
        let part = b"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n";
        let form = [&part[..], bomb, b"\r\n--B--\r\n"].concat();
        let reply = post_file(&hw, "", "multipart/form-data; boundary=B", &form).await;
        assert_eq!(reply.problem(), (422, "image_too_large".to_owned()), "{:?}", &bomb[..20]);
    }
    hw.wait_until("nothing is left of them", async || stored_files(&hw).is_empty()).await;
    for picture in [png(1_000, 1_000), png(32_768, 30), jpeg(1_000, 3_000_000)] {
        assert_eq!(post_file(&hw, "", "image/png", &picture).await.status, 201);
    }
    // A file that only starts like an image is text, whatever size it would have.
    assert_eq!(post_file(&hw, "", "image/gif", b"GIF89a=1;alert(1)//").await.status, 201);
}

/// Ten million bytes that decompress to ten thousand million.
fn zip_bomb() -> Vec<u8> {
    let mut packing = Compress::new(Compression::best(), false);
    let mut zeros = Vec::with_capacity(1 << 20);
    packing.compress_vec(&vec![0; 1 << 20], &mut zeros, FlushCompress::Full).unwrap();
    let head = b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0x";
    let mut bomb = head.to_vec();
    while bomb.len() < 10_000_000 {
        bomb.extend_from_slice(&zeros);
    }
    bomb
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_stored_unchanged_and_never_unpacked() {
    let hw = Server::demo();
    upload_file(&hw, "", &vec![b'x'; 2_000_000]).await;
    let (bomb, before) = (zip_bomb(), peak_memory_bytes(&hw));
    let file = upload_file(&hw, "?name=bomb.zip", &bomb).await;
    assert_eq!((str_field(&file, "contentType"), file["size"].as_u64()), ("application/zip", Some(bomb.len() as u64)));
    let (status, headers, bytes) = fetch_bytes(&signed_url(&hw, &file).await, &[]).await;
    assert!(status == 200 && bytes == bomb, "{status}");
    assert!(headers["content-disposition"].to_str().unwrap().starts_with("attachment; "));
    let grown = peak_memory_bytes(&hw).saturating_sub(before);
    assert!(grown < 8_000_000, "{grown} bytes");
}
