//! A refusal arrives, also when the client is still sending what is refused.
//!
//! A connection that is closed with bytes unread is reset by the kernel, and a reset takes the answer with it.

use crate::harness::{Server, TEST_TIMEOUT, read_until_closed};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

const MIB: usize = 1024 * 1024;
const ROUTE: &str = "/api/v1/agent/attachments";
/// What the server throws away at most, and for how long, with room for what lies in the buffers of two sockets.
const THROWN_AWAY_MAX: usize = (64 + 16) * MIB;
const LINGERS: Duration = Duration::from_secs(2);
/// Well before that.
const AT_ONCE: Duration = Duration::from_millis(1_500);

fn head(more: &str) -> String {
    format!("POST {ROUTE} HTTP/1.1\r\nhost: localhost\r\n{more}content-length: 500000000\r\n\r\n")
}

/// A connection whose request was refused, and which has been told so.
async fn refused(hw: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    stream.write_all(head("").as_bytes()).await.unwrap();
    let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    stream
}

/// Sends until it is cut off; how much that was.
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

/// Sends a little at a time until it is cut off; how long that took.
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
        // One refusal is about the body, the other would be the same without one.
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
async fn whoever_goes_on_sending_is_cut_off_in_the_end() {
    let hw = Server::demo();
    let sent = pour(&mut refused(&hw).await, &vec![b'x'; 64 * 1024]).await;
    assert!(sent <= THROWN_AWAY_MAX, "{sent} bytes");
    let took = drip(&mut refused(&hw).await).await;
    assert!(took > LINGERS / 2 && took < LINGERS * 4, "{took:?}");
    assert_eq!(hw.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn whoever_was_answered_in_full_is_not_waited_for() {
    let hw = Server::demo();
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let took = drip(&mut stream).await;
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_whoever_goes_on_sending() {
    let mut hw = Server::demo();
    let mut stream = refused(&hw).await;
    let began = Instant::now();
    hw.signal("-TERM");
    let took = drip(&mut stream).await;
    assert!(hw.wait_exit().success());
    let stopped = began.elapsed();
    assert!(took < AT_ONCE && stopped < AT_ONCE, "{took:?}, {stopped:?}");
}
