//! What a socket may cost, and how it is let go.

use super::client::{Got, Socket};
use super::{chat, turn};
use crate::harness::{PATIENCE, Server};
use serde_json::json;

#[tokio::test]
async fn only_a_websocket_is_opened() {
    let hw = Server::start("[limits]\nstreams_per_user_max = 1");
    let plain = hw.get("/ws").await;
    assert_eq!((plain.status, plain.header("upgrade")), (426, "websocket"));
    assert_eq!(plain.json()["code"], "upgrade_required");
    let foreign = Socket::with_headers(&hw, "Origin: https://evil.example\r\n").await.err().unwrap();
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let mut socket = Socket::with_headers(&hw, "Origin: http://localhost:3000\r\n").await.unwrap();
    let second = Socket::with_headers(&hw, "").await.err().unwrap();
    assert!(second.starts_with("HTTP/1.1 429"), "a socket is a stream like any other: {second}");
    socket.send(0x88, &1000_u16.to_be_bytes()).await;
    assert_eq!(socket.end().await, Got::Closed(1000));
    hw.until("the socket is closed", async || Socket::with_headers(&hw, "").await.is_ok()).await;
}

#[tokio::test]
async fn a_message_that_is_too_large_closes_the_socket_and_nothing_else() {
    let hw = Server::start("[limits]\nbody_bytes_max = 1000");
    let mut socket = Socket::open(&hw).await;
    socket.say(&chat("s1", "story 100")).await;
    socket.until("message_start").await;
    socket.say_text(&"x".repeat(1001)).await;
    assert_eq!(socket.end().await, Got::Closed(1009));
    let mut socket = Socket::open(&hw).await;
    socket.say(&json!({"type": "resume", "session_id": "s1"})).await;
    turn(&mut socket).await;
    socket.send(0x81, b"\xff").await;
    assert_eq!(socket.end().await, Got::Closed(1007));
    let mut socket = Socket::open(&hw).await;
    socket.send(0xf1, b"x").await;
    assert_eq!(socket.end().await, Got::Closed(1002));
}

#[tokio::test]
async fn whoever_does_not_answer_pings_is_let_go() {
    let hw = Server::start("[limits]\nheartbeat_ms = 300");
    let mut silent = Socket::open(&hw).await;
    silent.polite = false;
    let mut pings = 0;
    let end = loop {
        match silent.got().await {
            Got::Ping => pings += 1,
            end => break end,
        }
    };
    assert_eq!((end, pings), (Got::Closed(4408), 2));
    let mut polite = Socket::open(&hw).await;
    for _ in 0..4 {
        assert_eq!(polite.got().await, Got::Ping);
    }
    polite.say(&json!({"type": "ping"})).await;
    assert_eq!(polite.next().await["type"], "pong");
}

/// A socket, as soon as there is room for one.
async fn admitted(hw: &Server) -> Socket {
    let asking = async {
        loop {
            match Socket::with_headers(hw, "").await {
                Ok(socket) => return socket,
                Err(head) => assert!(head.starts_with("HTTP/1.1 429"), "{head}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("room for one more")
}

#[tokio::test]
async fn whoever_takes_nothing_is_closed_and_can_come_back() {
    let hw = Server::start("[limits]\nwrite_stall_ms = 300\nstreams_per_user_max = 2");
    let mut stalled = Socket::open(&hw).await;
    let mut reader = Socket::open(&hw).await;
    stalled.say(&chat("s1", "story 20000 fast")).await;
    let first = stalled.next().await;
    reader.say(&chat("s2", "hello")).await;
    turn(&mut reader).await;
    // The other one reads all the time, so it is not the one that makes room.
    let mut back = admitted(&hw).await;
    reader.say(&json!({"type": "ping"})).await;
    assert_eq!(reader.next().await["type"], "pong");
    back.say(&json!({"type": "resume", "session_id": "s1", "after": first["cursor"]})).await;
    let frames = back.until("message_stop").await;
    let deltas = frames.iter().filter(|frame| frame["type"] == "content_block_delta").count();
    assert_eq!(deltas, 20_000);
    drop(stalled);
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let mut hw = Server::demo();
    let mut idle = Socket::open(&hw).await;
    let mut busy = Socket::open(&hw).await;
    busy.say(&chat("s1", "hello")).await;
    turn(&mut busy).await;
    idle.say(&json!({"type": "ping"})).await;
    idle.next().await;
    hw.signal("-TERM");
    assert_eq!(idle.end().await, Got::Closed(1001));
    assert_eq!(busy.end().await, Got::Closed(1012));
    assert!(hw.exited().success());
}
