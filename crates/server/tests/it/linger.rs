//! An error response arrives even while the client is still sending.
//!
//! A connection closed with unread bytes is reset by the kernel, and a reset discards the response.

use crate::harness::{Server, TEST_TIMEOUT, read_until_closed};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

const MIB: usize = 1024 * 1024;
const ROUTE: &str = "/api/v1/agent/attachments";
/// What the server discards at most, and for how long, with an allowance for socket buffers.
const THROWN_AWAY_MAX: usize = (64 + 16) * MIB;
const LINGERS: Duration = Duration::from_secs(2);
/// Well before that.
const AT_ONCE: Duration = Duration::from_millis(1_500);

fn head(more: &str) -> String {
    format!("POST {ROUTE} HTTP/1.1\r\nhost: localhost\r\n{more}content-length: 500000000\r\n\r\n")
}

/// A connection whose request was refused, after reading the response.
async fn refused(hw: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    stream.write_all(head("").as_bytes()).await.unwrap();
    let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    stream
}

/// Sends until the connection is closed; returns the number of bytes.
async fn pour(stream: &mut TcpStream, piece: &[u8]) -> usize {
    let mut sent = 0;
    let pouring = async {
        while stream.write_all(piece).await.is_ok() {
            sent += piece.len();
        }
    };
    timeout(TEST_TIMEOUT, pouring).await.expect("it is cut off");
    sent
}

/// Sends slowly until the connection is closed; returns the time.
async fn drip(stream: &mut TcpStream) -> Duration {
    let (began, mut often) = (Instant::now(), interval(Duration::from_millis(20)));
    let dripping = async {
        while stream.write_all(b"x").await.is_ok() {
            often.tick().await;
        }
    };
    timeout(TEST_TIMEOUT, dripping).await.expect("it is cut off");
    began.elapsed()
}

#[tokio::test]
async fn a_client_that_sends_before_it_reads_learns_why_it_was_refused() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    let output = hw.run_cli(&["keys", "create", "--user", "ann"]);
    let key = format!("authorization: Bearer {}\r\n", String::from_utf8(output.stdout).unwrap().trim());
    let body = vec![b'x'; 8 * MIB];
    for round in 0..50 {
        // One error is about the body, the other is independent of it.
        for (more, status) in [(key.as_str(), 413), ("", 401)] {
            let mut stream = TcpStream::connect(&hw.address).await.unwrap();
            stream.write_all(head(more).as_bytes()).await.unwrap();
            stream.write_all(&body).await.unwrap_or_else(|error| panic!("round {round}, {status}: {error}"));
            let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "round {round}, {status}: {answer}");
            let length = answer.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            let body = answer.split("\r\n\r\n").nth(1).unwrap();
            assert_eq!(length.and_then(|length| length.parse().ok()), Some(body.len()), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_client_that_keeps_sending_is_disconnected() {
    let hw = Server::demo();
    let sent = pour(&mut refused(&hw).await, &vec![b'x'; 64 * 1024]).await;
    assert!(sent <= THROWN_AWAY_MAX, "{sent} bytes");
    let took = drip(&mut refused(&hw).await).await;
    assert!(took > LINGERS / 2 && took < LINGERS * 4, "{took:?}");
    assert_eq!(hw.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_fully_answered_connection_does_not_linger() {
    let hw = Server::demo();
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let took = drip(&mut stream).await;
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_clients_that_keep_sending() {
    let mut hw = Server::demo();
    let mut stream = refused(&hw).await;
    let began = Instant::now();
    hw.signal("-TERM");
    let took = drip(&mut stream).await;
    assert!(hw.wait_exit().success());
    let stopped = began.elapsed();
    assert!(took < AT_ONCE && stopped < AT_ONCE, "{took:?}, {stopped:?}");
}
