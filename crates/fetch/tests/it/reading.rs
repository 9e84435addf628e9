//! From a URL to what a model reads.

use crate::names::fetch;
use crate::pdf_maker::document;
use crate::site::{Site, answer};
use fetch::{DocumentContent, DocumentReader, FetchLimits, FetchedFile, PdfReader, ReadLimits};
use std::time::{Duration, Instant};

async fn fetched(kind: &str, path: &str, body: impl AsRef<[u8]>) -> FetchedFile {
    let site = Site::with_response(answer(kind, body)).await;
    fetch(&site.fetcher(FetchLimits::default()), &site.url(path)).await.unwrap()
}

fn reader() -> DocumentReader {
    DocumentReader::new(ReadLimits { timeout: Duration::from_secs(60), ..ReadLimits::default() }, PdfReader::InProcess)
}

async fn text(kind: &str, path: &str, body: impl AsRef<[u8]>) -> String {
    match reader().read(&fetched(kind, path, body).await).await.unwrap() {
        DocumentContent::Text { text, truncated: false } => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_text_format_is_read() {
    assert_eq!(
        text("text/html", "/", "<title>T</title><p>a <a href=/b>b</a>").await.split("http").next(),
        Some("T\n\na [b](")
    );
    assert_eq!(text("text/markdown", "/", "# T\r\n\r\n*a*").await, "# T\n\n*a*");
    assert_eq!(text("text/csv", "/", "a;b\r\n1;2\r\n").await, "a;b\n1;2\n");
    assert_eq!(text("text/plain; charset=shift_jis", "/", b"\x93\xfa\x96\x7b").await, "日本");
    assert_eq!(text("text/plain", "/", b"caf\xe9").await, "café");
    assert_eq!(text("application/octet-stream", "/a.pdf", document(&[&["in a document"]])).await, "in a document");
}

#[tokio::test]
async fn an_image_is_passed_on_unchanged() {
    // The smallest GIF.
    let gif = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0\x3b";
    let found = reader().read(&fetched("application/octet-stream", "/", gif).await).await.unwrap();
    assert_eq!(found, DocumentContent::Image { content_type: "image/gif", bytes: gif.to_vec().into() });
}

#[tokio::test]
async fn five_megabytes_of_page_are_read_in_time() {
    let row = "<div class=row><p>Some <b>bold</b> words &amp; a <a href='/x?y=z'>link</a></p><script>var x = '</p>';</script>";
    let html = format!("<!DOCTYPE html><title>Large</title>{}", row.repeat(5 * 1024 * 1024 / row.len() + 1));
    assert!(html.len() > 5 * 1024 * 1024);
    let page = fetched("text/html", "/", html).await;
    let began = Instant::now();
    let all = DocumentReader::new(
        ReadLimits { text_bytes_max: 20 << 20, timeout: Duration::from_secs(60), ..ReadLimits::default() },
        PdfReader::InProcess,
    );
    let DocumentContent::Text { text, truncated } = all.read(&page).await.unwrap() else { panic!("no text") };
    println!("{} bytes of text in {:?}", text.len(), began.elapsed());
    assert!(!truncated && text.starts_with("Large\n\nSome bold words & a [link](http://127.0.0.1"));
    assert!(text.lines().filter(|line| line.starts_with("Some bold")).count() > 40_000 && !text.contains("var x"));

    let DocumentContent::Text { text, truncated } = reader().read(&page).await.unwrap() else { panic!("no text") };
    assert!(truncated && text.len() <= 1024 * 1024 && text.len() > 1024 * 1024 - 4);
}
