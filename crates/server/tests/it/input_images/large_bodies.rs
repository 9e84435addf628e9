//! Large bodies: size, concurrency and cost.

use super::*;
use crate::blocks::socket::Received;
use crate::harness::{TEST_TIMEOUT, read_until_closed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn fifty_megabytes_are_refused_in_every_protocol() {
    let hw = Server::demo();
    for way in API_PROTOCOLS {
        // With an announced length nothing has to be sent.
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 50000000\r\n\r\n{{",
            way.path(),
            hw.address
        );
        let answer = hw.send_raw(head).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{way:?}: {answer}");
    }
    // Without one, the limit applies while reading.
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    let head = format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        hw.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [format!("{MIB:x}\r\n").as_bytes(), &vec![b' '; MIB], b"\r\n"].concat();
    // It stops reading before everything has arrived.
    for _ in 0..50 {
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let answer = read_until_closed(&mut stream, TEST_TIMEOUT).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!((kept(&hw).len(), hw.count_threads_and_records().await), (0, (0, 0)));
}

#[tokio::test]
async fn an_image_of_some_megabytes_is_accepted_in_every_protocol() {
    let hw = Server::demo();
    for (way, tag) in API_PROTOCOLS.into_iter().zip(["a", "b", "c", "d"]) {
        let bytes = png(&tag.repeat(6 * MIB));
        let reply = hw.post(way.path(), way.request_with_image(&data_url("image/png", &bytes))).await;
        assert_eq!(reply.status, 200, "{way:?}: {}", reply.text);
        assert_eq!(fetch_bytes(&hw, &blob(&bytes), None).await, (200, bytes), "{way:?}");
    }
    assert_eq!(kept(&hw).len(), 4);
}

/// Announces a body and waits for the server's response: whether there is a permit.
async fn announce(hw: &Server, bytes: usize) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    let head = format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\n\
         Expect: 100-continue\r\nConnection: close\r\n\r\n",
        hw.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
    }
    (stream, String::from_utf8(answer).unwrap())
}

async fn has_room(hw: &Server) -> bool {
    announce(hw, 2 * MIB).await.1.starts_with("HTTP/1.1 100 ")
}

#[tokio::test]
async fn the_number_of_concurrent_large_bodies_is_limited() {
    let hw = Server::demo_with("[limits]\nlarge_bodies_max = 1");
    let body = ApiProtocol::Native.request_with_image(&data_url("image/png", &png(&"x".repeat(2 * MIB)))).to_string();
    let (mut first, answer) = announce(&hw, body.len()).await;
    assert!(answer.starts_with("HTTP/1.1 100 "), "{answer}");
    let (_, refused) = announce(&hw, body.len()).await;
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(refused.to_lowercase().contains("\r\nretry-after: 2\r\n"), "{refused}");
    assert_eq!(
        hw.post("/v1/tasks", ApiProtocol::Native.request_with_image(&picture_url("small"))).await.status,
        200,
        "small ones go on"
    );
    first.write_all(body.as_bytes()).await.unwrap();
    let answer = read_until_closed(&mut first, TEST_TIMEOUT).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:.200}");
    assert!(has_room(&hw).await, "there is room again");
}

/// A message above the size of small ones, in two fragments.
fn long_chat(session: &str) -> (Vec<u8>, Vec<u8>) {
    let url = data_url("image/png", &png(&session.repeat(2 * MIB)));
    let message = json!({"type": "chat", "session_id": session, "content": "hello", "content_urls": [url]});
    let mut first = message.to_string().into_bytes();
    let rest = first.split_off(3 * MIB / 2);
    (first, rest)
}

#[tokio::test]
async fn a_large_socket_message_uses_the_same_limit_and_another_waits() {
    let hw = Server::demo_with("[limits]\nlarge_bodies_max = 1");
    let (first, rest) = long_chat("a");
    let (mut a, mut b) = (Socket::connect(&hw).await, Socket::connect(&hw).await);
    a.send_frame(0x01, &first).await;
    hw.wait_until("the socket holds the room", async || !has_room(&hw).await).await;
    let other = async {
        let (first, rest) = long_chat("b");
        b.send_frame(0x01, &first).await;
        b.send_frame(0x80, &rest).await;
        b.read_until("message_stop").await[0]["message_id"].as_str().unwrap().to_owned()
    };
    let one = async {
        let mut small = Socket::connect(&hw).await;
        small.send_json(&json!({"type": "ping"})).await;
        assert_eq!(small.next_event().await["type"], "pong", "small ones go on");
        a.send_frame(0x80, &rest).await;
        a.read_until("message_stop").await[0]["message_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = tokio::join!(one, other);
    // Run ids start with their time.
    assert!(first < second, "the second was heard when the first had been");
    hw.wait_until("there is room again", async || has_room(&hw).await).await;
}

#[tokio::test]
async fn an_unfinished_large_message_loses_its_permit() {
    let hw = Server::demo_with("[limits]\nlarge_bodies_max = 1\nbody_read_ms = 1500\nheartbeat_ms = 200");
    let mut socket = Socket::connect(&hw).await;
    socket.send_frame(0x01, &long_chat("a").0).await;
    hw.wait_until("the socket holds the room", async || !has_room(&hw).await).await;
    assert_eq!(socket.read_close().await, Received::Closed(4408), "also when it answers pings");
    hw.wait_until("there is room again", async || has_room(&hw).await).await;
}
