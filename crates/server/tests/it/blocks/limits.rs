//! Limits of a socket, and how it is closed.

use super::socket::{Received, Socket};
use super::{chat_message, read_turn};
use crate::harness::{Server, TEST_TIMEOUT};
use serde_json::json;

#[tokio::test]
async fn only_a_websocket_is_opened() {
    let hw = Server::demo_with("[limits]\nstreams_per_user_max = 1");
    let plain = hw.get("/ws").await;
    assert_eq!((plain.status, plain.header("upgrade")), (426, "websocket"));
    assert_eq!(plain.json()["code"], "upgrade_required");
    let foreign = Socket::connect_with_headers(&hw, "Origin: https://evil.example\r\n").await.err().unwrap();
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let mut socket = Socket::connect_with_headers(&hw, "Origin: http://localhost:3000\r\n").await.unwrap();
    let second = Socket::connect_with_headers(&hw, "").await.err().unwrap();
    assert!(second.starts_with("HTTP/1.1 429"), "a socket is a stream like any other: {second}");
    socket.send_frame(0x88, &1000_u16.to_be_bytes()).await;
    assert_eq!(socket.read_close().await, Received::Closed(1000));
    hw.wait_until("the socket is closed", async || Socket::connect_with_headers(&hw, "").await.is_ok()).await;
}

#[tokio::test]
async fn an_oversized_message_closes_only_its_socket() {
    let hw = Server::demo_with("[limits]\nbody_bytes_max = 1000");
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "story 100")).await;
    socket.read_until("message_start").await;
    socket.send_text(&"x".repeat(1001)).await;
    assert_eq!(socket.read_close().await, Received::Closed(1009));
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    read_turn(&mut socket).await;
    socket.send_frame(0x81, b"\xff").await;
    assert_eq!(socket.read_close().await, Received::Closed(1007));
    let mut socket = Socket::connect(&hw).await;
    socket.send_frame(0xf1, b"x").await;
    assert_eq!(socket.read_close().await, Received::Closed(1002));
}

#[tokio::test]
async fn a_socket_that_does_not_answer_pings_is_closed() {
    let hw = Server::demo_with("[limits]\nheartbeat_ms = 300");
    let mut silent = Socket::connect(&hw).await;
    silent.answers_pings = false;
    let mut pings = 0;
    let end = loop {
        match silent.receive().await {
            Received::Ping => pings += 1,
            end => break end,
        }
    };
    assert_eq!((end, pings), (Received::Closed(4408), 2));
    let mut polite = Socket::connect(&hw).await;
    for _ in 0..4 {
        assert_eq!(polite.receive().await, Received::Ping);
    }
    polite.send_json(&json!({"type": "ping"})).await;
    assert_eq!(polite.next_event().await["type"], "pong");
}

/// Opens a socket as soon as the limit allows one.
async fn admitted(hw: &Server) -> Socket {
    let asking = async {
        loop {
            match Socket::connect_with_headers(hw, "").await {
                Ok(socket) => return socket,
                Err(head) => assert!(head.starts_with("HTTP/1.1 429"), "{head}"),
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, asking).await.expect("room for one more")
}

#[tokio::test]
async fn a_socket_that_reads_nothing_is_closed_and_can_resume() {
    let hw = Server::demo_with("[limits]\nwrite_stall_ms = 300\nstreams_per_user_max = 2");
    let mut stalled = Socket::connect(&hw).await;
    let mut reader = Socket::connect(&hw).await;
    stalled.send_json(&chat_message("s1", "story 20000 fast")).await;
    let first = stalled.next_event().await;
    reader.send_json(&chat_message("s2", "hello")).await;
    read_turn(&mut reader).await;
    // The other one keeps reading, so it is not the one that is closed.
    let mut back = admitted(&hw).await;
    reader.send_json(&json!({"type": "ping"})).await;
    assert_eq!(reader.next_event().await["type"], "pong");
    back.send_json(&json!({"type": "resume", "session_id": "s1", "after": first["cursor"]})).await;
    let frames = back.read_until("message_stop").await;
    let deltas = frames.iter().filter(|frame| frame["type"] == "content_block_delta").count();
    assert_eq!(deltas, 20_000);
    drop(stalled);
}

#[tokio::test]
async fn a_stopping_server_announces_it() {
    let mut hw = Server::demo();
    let mut idle = Socket::connect(&hw).await;
    let mut busy = Socket::connect(&hw).await;
    busy.send_json(&chat_message("s1", "hello")).await;
    read_turn(&mut busy).await;
    idle.send_json(&json!({"type": "ping"})).await;
    idle.next_event().await;
    hw.signal("-TERM");
    assert_eq!(idle.read_close().await, Received::Closed(1001));
    assert_eq!(busy.read_close().await, Received::Closed(1012));
    assert!(hw.wait_exit().success());
}
