//! Responses that are too large, too slow, or lie about their size.

use crate::fetched_files::gzip;
use crate::names::{fetch, rules_for};
use crate::site::{Site, answer, answer_with};
use fetch::{FetchError, FetchLimits, Fetcher};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// 64 MiB of the letter a, compressed.
const BROTLI_BOMB: &[u8] = &[
    0xcb, 0xff, 0xff, 0x3f, 0xf8, 0x25, 0xc2, 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x8f, 0xff, 0xff, 0x7f, 0xf0, 0x4b,
    0x00, 0xc4, 0x61, 0x11, 0x80, 0xee, 0xfd, 0x1f, 0xff, 0xff, 0xff, 0xe0, 0x97, 0x00, 0x88, 0xc3, 0x02, 0x00, 0xdd,
    0xfb, 0x3f, 0xfe, 0xff, 0xff, 0xc1, 0x2f, 0x01, 0x10, 0x87, 0x05, 0x00, 0xba, 0xf7, 0x7f, 0xfc, 0xff, 0xff, 0x83,
    0x5f, 0x02, 0x20, 0x0e, 0x0b, 0x00, 0x74, 0xef, 0xff, 0xf8, 0xff, 0xff, 0x07, 0xbf, 0x04, 0x40, 0x1c, 0x16, 0x00,
    0xe8, 0xde, 0xff, 0xf1, 0xff, 0xff, 0x0f, 0x7e, 0x09, 0x80, 0x38, 0x2c, 0x00, 0xd0, 0xbd, 0xff, 0xcb, 0xff, 0xff,
    0x3f, 0xfc, 0x12, 0x00, 0x71, 0x58, 0x00, 0xa0, 0x7b, 0xff, 0x07,
];

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";

fn short() -> FetchLimits {
    FetchLimits {
        connect_timeout: Duration::from_secs(2),
        first_byte_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(300),
        total_timeout: Duration::from_millis(900),
        ..FetchLimits::default()
    }
}

#[tokio::test]
async fn a_body_is_limited_to_the_byte() {
    let limits = FetchLimits { bytes_max: 1000, ..FetchLimits::default() };
    for (length, fits) in [(1000, true), (1001, false)] {
        // With a length, without one, and compressed: the limit is the same.
        let body = "a".repeat(length);
        let packed = answer_with("content-type: text/plain\r\ncontent-encoding: gzip\r\n", gzip(body.as_bytes()));
        for said in [answer("text/plain", &body), [HEAD, body.as_bytes()].concat(), packed] {
            let site = Site::with_response(said).await;
            let found = fetch(&site.fetcher(limits.clone()), &site.url("/")).await;
            let found = found.map(|file| file.bytes.len());
            assert_eq!(found, if fits { Ok(length) } else { Err(FetchError::TooLarge) });
        }
    }
}

#[tokio::test]
async fn an_endless_body_closes_the_connection() {
    let (ended, mut has_ended) = tokio::sync::mpsc::channel(1);
    let site = Site::with_handler(move |_, mut socket| {
        let ended = ended.clone();
        async move {
            socket.write_all(HEAD).await.unwrap();
            let piece = vec![b'a'; 64 * 1024];
            while socket.write_all(&piece).await.is_ok() {}
            ended.send(()).await.unwrap();
        }
    })
    .await;
    let mut told = Vec::new();
    let found = site.fetcher(FetchLimits::default()).fetch(&site.url("/"), &mut |bytes| told.push(bytes)).await;
    assert_eq!(found, Err(FetchError::TooLarge));
    has_ended.recv().await.unwrap();
    assert!(told.is_sorted() && told.len() > 1, "{told:?}");
    assert!(*told.last().unwrap() <= 24 * 1024 * 1024);
}

#[tokio::test]
async fn a_body_with_too_large_a_length_is_not_read() {
    let said = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10737418240\r\n\r\nabc";
    let site = Site::with_response(said).await;
    let mut told = 0;
    let found = site.fetcher(FetchLimits::default()).fetch(&site.url("/"), &mut |_| told += 1).await;
    assert_eq!((found, told), (Err(FetchError::TooLarge), 0));
}

#[tokio::test]
async fn a_wrong_content_length_is_detected() {
    let much = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\nconnection: close\r\n\r\nabc";
    let site = Site::with_response(much).await;
    assert_eq!(fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await, Err(FetchError::InvalidResponse));

    let little = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabcdef";
    let site = Site::with_response(little).await;
    let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await.unwrap();
    assert_eq!(found.bytes.as_ref(), b"abc");

    for lie in ["-1", "3, 4", "x", "99999999999999999999999"] {
        let said = format!("HTTP/1.1 200 OK\r\ncontent-length: {lie}\r\nconnection: close\r\n\r\nabc");
        let site = Site::with_response(said).await;
        let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await;
        assert_eq!(found, Err(FetchError::InvalidResponse), "{lie}");
    }
}

#[tokio::test]
async fn a_decompression_bomb_is_stopped_early() {
    let zeros = gzip(&vec![0; 64 * 1024 * 1024]);
    let nested = gzip(&gzip(&vec![0; 64 * 1024 * 1024]));
    assert!(zeros.len() < 1024 * 1024 && BROTLI_BOMB.len() < 200);
    for (encoding, body) in [("gzip", zeros), ("br", BROTLI_BOMB.to_vec())] {
        let said = answer_with(&format!("content-type: text/plain\r\ncontent-encoding: {encoding}\r\n"), body);
        let site = Site::with_response(said).await;
        let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await;
        assert_eq!(found, Err(FetchError::TooLarge), "{encoding}");
    }
    // One layer is decoded, and what is left is no text.
    let said = answer_with("content-type: text/plain\r\ncontent-encoding: gzip\r\n", nested);
    let site = Site::with_response(said).await;
    let found = fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await;
    assert_eq!(found, Err(FetchError::UnsupportedType));
}

#[tokio::test]
async fn a_hundred_thousand_headers_are_too_many() {
    let headers: String = (0..100_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let site = Site::with_response(answer_with(&headers, "hi")).await;
    assert_eq!(fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await, Err(FetchError::InvalidResponse));
    let one = format!("x: {}\r\n", "y".repeat(10_000_000));
    let site = Site::with_response(answer_with(&one, "hi")).await;
    assert_eq!(fetch(&site.fetcher(FetchLimits::default()), &site.url("/")).await, Err(FetchError::InvalidResponse));
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let silent = Site::with_handler(|_, socket| async move {
        let _kept = socket;
        std::future::pending::<()>().await;
    })
    .await;
    let stalled = Site::with_handler(|_, mut socket| async move {
        socket.write_all(HEAD).await.unwrap();
        socket.write_all(b"begun").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let patient = FetchLimits { total_timeout: Duration::from_secs(60), ..short() };
    for site in [&silent, &stalled] {
        let began = Instant::now();
        assert_eq!(fetch(&site.fetcher(patient.clone()), &site.url("/")).await, Err(FetchError::TimedOut));
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_trickling_server_times_out() {
    let site = Site::with_handler(|_, mut socket| async move {
        socket.write_all(HEAD).await.unwrap();
        let mut drops = tokio::time::interval(Duration::from_millis(50));
        while socket.write_all(b"a").await.is_ok() {
            drops.tick().await;
        }
    })
    .await;
    let mut told = 0;
    let found = site.fetcher(short()).fetch(&site.url("/"), &mut |bytes| told = bytes).await;
    assert_eq!(found, Err(FetchError::TimedOut));
    assert!(told > 1, "it did not stand still: {told}");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let fetcher = Fetcher::new(rules_for(&["127.0.0.1"], &[port]), FetchLimits::default());
    let found = fetch(&fetcher, &format!("http://127.0.0.1:{port}/")).await;
    assert_eq!(found, Err(FetchError::Unreachable));
    assert!(FetchError::Unreachable.is_retryable());
}

/// Sends these bytes for as long as a client reads, from a thread of its own; returns the port.
fn repeating(head: &'static [u8], piece: Vec<u8>) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 4096]).unwrap();
        let _ = socket.write_all(head);
        while socket.write_all(&piece).is_ok() {}
    });
    port
}

#[tokio::test]
async fn a_slow_to_parse_response_blocks_no_other() {
    let packed = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: gzip\r\n\r\n";
    for (what, head, piece) in [
        ("more will come", &b""[..], b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(2000)),
        ("nothing, packed, again and again", packed, gzip(b"").repeat(3000)),
    ] {
        let port = repeating(head, piece);
        let fetcher = Fetcher::new(rules_for(&["127.0.0.1"], &[port]), short());
        let url = format!("http://127.0.0.1:{port}/");
        let (began, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        let mut fetching = Box::pin(fetch(&fetcher, &url));
        let found = loop {
            tokio::select! {
                found = &mut fetching => break found,
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
            }
        };
        assert_eq!(found, Err(FetchError::TimedOut), "{what}");
        assert!(began.elapsed() < Duration::from_secs(3), "{what}: it took {:?}", began.elapsed());
        assert!(longest < Duration::from_millis(500), "{what}: others waited {longest:?}");
    }
}
