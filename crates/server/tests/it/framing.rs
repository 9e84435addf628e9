//! HTTP framing: raw bytes in, and the server keeps working.

use crate::harness::{Server, TEST_TIMEOUT, read_until_closed};
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

fn head(hw: &Server, more: &str) -> String {
    format!("POST /v1/tasks HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n{more}\r\n", hw.address)
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn contradictory_content_lengths_are_refused() {
    let hw = Server::demo();
    let before = hw.count_threads_and_records().await;
    let body = r#"{"model":"demo","input":"hi"}"#;
    let bad = [
        format!("content-length: {}\r\ncontent-length: 5\r\n", body.len()),
        "content-length: -1\r\n".to_owned(),
        "content-length: +5\r\n".to_owned(),
        "content-length: 99999999999999999999\r\n".to_owned(),
        "transfer-encoding: chunked, identity\r\n".to_owned(),
        "transfer-encoding: gzip\r\n".to_owned(),
        "x-folded: a\r\n b\r\n".to_owned(),
        "bad header: x\r\n".to_owned(),
        "x-nul: a\0b\r\n".to_owned(),
    ];
    for more in bad {
        let answer = hw.send_raw(head(&hw, &more) + body).await;
        assert_eq!(status(&answer), 400, "{more:?}: {answer}");
    }
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn content_length_with_chunked_encoding_closes_the_connection() {
    let hw = Server::demo();
    // Whichever of the two a proxy believed: nothing that follows is parsed as a second request.
    let smuggled = format!("GET /v1/threads HTTP/1.1\r\nhost: {}\r\n\r\n", hw.address);
    let body = r#"{"model":"nobody"}"#;
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n{smuggled}", body.len());
    let answer = hw.send_raw(head(&hw, "content-length: 5\r\ntransfer-encoding: chunked\r\n") + &chunked).await;
    assert!(matches!(status(&answer), 400 | 422), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let hw = Server::demo();
    let host = format!("host: {}\r\n", hw.address);
    let flood = "a: b\r\n".repeat(10_000);
    let long = format!("x: {}\r\n", "y".repeat(1_000_000));
    for more in [flood, long] {
        let answer = hw.send_raw(format!("GET /healthz HTTP/1.1\r\n{host}{more}\r\n")).await;
        // A server that stops reading may reset the connection before its response is read.
        assert!(matches!(status(&answer), 431 | 0), "{answer}");
    }
    let url = "x".repeat(70_000);
    let answer = hw.send_raw(format!("GET /{url} HTTP/1.1\r\n{host}\r\n")).await;
    assert!(matches!(status(&answer), 414 | 431 | 0), "{answer}");
    for garbage in [
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(&hw.address).await.unwrap();
        stream.write_all(garbage.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
        assert!(matches!(status(&answer), 0 | 400 | 505), "{garbage:?}: {answer}");
    }
    assert_eq!(hw.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn slow_heads_and_bodies_time_out() {
    let hw = Server::demo_with("[limits]\nheader_read_ms = 200\nbody_read_ms = 200");
    let before = hw.count_threads_and_records().await;
    // A head that never ends.
    let answer = hw.send_raw("GET /healthz HTTP/1.1\r\nhost: ").await;
    assert!(matches!(status(&answer), 0 | 408), "{answer}");
    // A body that never arrives, a truncated one, and chunked one that never ends.
    let answer = hw.send_raw(head(&hw, "content-length: 10\r\n") + "{").await;
    assert_eq!(status(&answer), 408, "{answer}");
    assert!(answer.contains("body_timeout") && answer.contains("connection: close"), "{answer}");
    let answer = hw.send_raw(head(&hw, "transfer-encoding: chunked\r\n") + "1\r\n{\r\n").await;
    assert_eq!(status(&answer), 408, "{answer}");
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn a_body_is_refused_before_it_is_read() {
    let hw = Server::demo_with("[limits]\nbody_bytes_max = 1000");
    let answer = hw.send_raw(head(&hw, "content-length: 300000000\r\n")).await;
    assert_eq!(status(&answer), 413, "{answer}");
    let endless = "400\r\n".to_owned() + &" ".repeat(0x400) + "\r\n";
    let answer = hw.send_raw(head(&hw, "transfer-encoding: chunked\r\n") + &endless).await;
    assert_eq!(status(&answer), 413, "{answer}");
    assert!(answer.contains("\"bytes_max\":1000"));
}

#[tokio::test]
async fn half_closed_sockets_leave_nothing_behind() {
    let hw = Server::demo();
    let before = hw.count_threads_and_records().await;
    let halves = [
        "P".to_owned(),
        "POST /v1/tasks HTTP/1.1\r\nhost".to_owned(),
        head(&hw, "content-length: 100\r\n") + r#"{"model":"demo","#,
        head(&hw, "transfer-encoding: chunked\r\n") + "5\r\n{\"mod",
    ];
    for half in halves {
        let mut stream = TcpStream::connect(&hw.address).await.unwrap();
        stream.write_all(half.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
        assert!(matches!(status(&answer), 0 | 400), "{half:?}: {answer}");
        // Once more without a close.
        let mut stream = TcpStream::connect(&hw.address).await.unwrap();
        stream.write_all(half.as_bytes()).await.unwrap();
        drop(stream);
    }
    assert_eq!(hw.count_threads_and_records().await, before);
    assert_eq!(hw.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_request_of_a_client_that_disconnects_at_once_still_counts() {
    let hw = Server::demo();
    for _ in 0..20 {
        let body = json!({"model": "demo", "input": "story 2 fast"}).to_string();
        let mut stream = TcpStream::connect(&hw.address).await.unwrap();
        let request = head(&hw, &format!("content-length: {}\r\n", body.len())) + &body;
        stream.write_all(request.as_bytes()).await.unwrap();
        drop(stream);
    }
    // Accepted requests are executed: nothing hangs in a queue.
    hw.wait_until("every run that was taken ends", async || {
        hw.get("/v1/tasks?status=queued,running").await.json()["data"].as_array().unwrap().is_empty()
    })
    .await;
}

#[tokio::test]
async fn old_http_versions_and_unusual_targets() {
    let hw = Server::demo();
    let host = format!("host: {}\r\n", hw.address);
    let answer = hw.send_raw(format!("GET /healthz HTTP/1.0\r\n{host}\r\n")).await;
    assert_eq!(status(&answer), 200, "{answer}");
    let answer = hw.send_raw(format!("CONNECT {} HTTP/1.1\r\n{host}\r\n", hw.address)).await;
    assert_eq!(status(&answer), 405, "{answer}");
    let answer = hw.send_raw(format!("OPTIONS * HTTP/1.1\r\n{host}connection: close\r\n\r\n")).await;
    assert!(matches!(status(&answer), 404 | 405), "{answer}");
    let answer = hw.send_raw(format!("GET http://evil.example/healthz HTTP/1.1\r\n{host}\r\n")).await;
    assert_eq!(status(&answer), 421, "{answer}");
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    stream.write_all(format!("GET /healthz HTTP/1.1\r\n{host}\r\n").repeat(50).as_bytes()).await.unwrap();
    let answers = read_until_closed(&mut stream, Duration::from_millis(500)).await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 50, "pipelined");
}
