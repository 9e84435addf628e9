//! Valid responses, compressed or not.

use crate::names::fetch;
use crate::site::{Site, answer, answer_with};
use fetch::{DocumentFormat, FetchError, FetchLimits};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::Write;

/// `hello brotli`, compressed.
const BROTLI: &[u8] = b"\x8b\x05\x80hello brotli\x03";

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

async fn fetched(said: Vec<u8>) -> Result<(DocumentFormat, Vec<u8>), FetchError> {
    let site = Site::with_response(said).await;
    let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/file")).await?;
    Ok((found.format, found.bytes.to_vec()))
}

#[tokio::test]
async fn a_file_has_its_name_type_and_charset() {
    let site = Site::with_response(answer("text/html; charset=koi8-r", "<p>hi")).await;
    let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/a/page%20one.html?q#f")).await.unwrap();
    assert_eq!(
        (found.name.as_str(), found.format, found.charset.as_deref()),
        ("page one.html", DocumentFormat::Html, Some("koi8-r"))
    );
    assert_eq!(found.url.as_str(), site.url("/a/page%20one.html?q"));
}

#[tokio::test]
async fn compressed_responses_are_decoded() {
    let packed = [("gzip", gzip(b"hello")), ("x-gzip", gzip(b"hello")), ("deflate", zlib(b"hello"))];
    for (encoding, body) in packed {
        let headers = format!("content-type: text/plain\r\ncontent-encoding: {encoding}\r\n");
        assert_eq!(
            fetched(answer_with(&headers, body)).await,
            Ok((DocumentFormat::Plain, b"hello".to_vec())),
            "{encoding}"
        );
    }
    let brotli = answer_with("content-type: text/plain\r\ncontent-encoding: br\r\n", BROTLI);
    assert_eq!(fetched(brotli).await, Ok((DocumentFormat::Plain, b"hello brotli".to_vec())));
}

#[tokio::test]
async fn an_undecodable_response_is_damaged() {
    let whole = gzip(&b"hello ".repeat(1000));
    let cut = whole[..whole.len() / 2].to_vec();
    let cases = [("gzip", cut), ("gzip", b"not packed".to_vec()), ("br", BROTLI[..8].to_vec()), ("br", vec![0xff; 40])];
    for (encoding, body) in cases.into_iter().chain([("zstd", b"x".to_vec()), ("gzip, gzip", gzip(b"x"))]) {
        let said = answer_with(&format!("content-type: text/plain\r\ncontent-encoding: {encoding}\r\n"), body);
        assert_eq!(fetched(said).await, Err(FetchError::InvalidResponse), "{encoding}");
    }
}

#[tokio::test]
async fn the_declared_content_type_is_not_trusted() {
    let refused = [
        answer("image/png", "<!DOCTYPE html><script>alert(1)</script>"),
        answer("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>"),
        answer("text/xml", "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]><x>&y;</x>"),
        answer("text/plain", b"PK\x03\x04\x14\0\0\0"),
        answer("application/zip", b"PK\x03\x04\x14\0\0\0"),
        answer("video/mp4", b"\0\0\0\x18ftypmp42"),
    ];
    for said in refused {
        let shown = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(fetched(said).await, Err(FetchError::UnsupportedType), "{shown}");
    }
    let png = b"\x89PNG\r\n\x1a\n".to_vec();
    assert_eq!(fetched(answer("text/plain", &png)).await, Ok((DocumentFormat::Png, png)));
    assert_eq!(FetchError::UnsupportedType.code(), "unsupported_type");
}
