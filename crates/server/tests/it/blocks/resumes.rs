//! Disconnecting and resuming: nothing is missed, nothing comes twice.

use super::socket::Socket;
use super::{chat_message, final_text, read_turn};
use crate::harness::Server;
use serde_json::{Value, json};

async fn resumed(hw: &Server, session: &str, after: Option<&Value>) -> Vec<Value> {
    let mut socket = Socket::connect(hw).await;
    let mut message = json!({"type": "resume", "session_id": session});
    if let Some(after) = after {
        message["after"] = after.clone();
    }
    socket.send_json(&message).await;
    socket.read_until("message_stop").await
}

#[tokio::test]
async fn resuming_at_every_cursor_yields_the_rest() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "weather")).await;
    let frames = read_turn(&mut socket).await;
    for (place, frame) in frames.iter().enumerate().take(frames.len() - 1) {
        assert_eq!(resumed(&hw, "s1", Some(&frame["cursor"])).await, frames[place + 1..], "after {place}");
    }
    assert_eq!(resumed(&hw, "s1", None).await, frames, "without a place it is the latest turn");
    let thread = hw.get("/v1/threads").await.json()["data"][0]["thread_id"].as_str().unwrap().to_owned();
    let by_thread = resumed(&hw, &thread, None).await;
    assert_eq!(by_thread[0]["session_id"], thread, "a session is shown under the name that it was asked for by");
    assert_eq!(by_thread[1..], frames[1..]);
}

#[tokio::test]
async fn disconnecting_changes_nothing_and_a_live_run_can_be_joined() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "story 100")).await;
    let mut had = socket.read_until("content_block_delta").await;
    drop(socket);
    let last = had.last().unwrap()["cursor"].clone();
    had.extend(resumed(&hw, "s1", Some(&last)).await);
    assert_eq!(resumed(&hw, "s1", None).await, had);
    let task = hw.wait_ended(had[0]["message_id"].as_str().unwrap()).await;
    assert_eq!(task["status"], "completed");
    assert_eq!(final_text(&had), super::last_message_text(&task));
}

#[tokio::test]
async fn attaching_before_the_first_token_gives_an_open_stream() {
    let hw = Server::demo();
    let mut first = Socket::connect(&hw).await;
    first.send_json(&chat_message("s1", "slow 1")).await;
    // Two sockets, one conversation; the second attaches when the session exists and nothing more.
    let mut second = Socket::connect(&hw).await;
    let frames = loop {
        second.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
        let frame = second.next_event().await;
        if frame["type"] == "message_start" {
            let mut frames = vec![frame];
            frames.extend(second.read_until("message_stop").await);
            break frames;
        }
        assert_eq!(frame["code"], "not_found");
    };
    assert_eq!(read_turn(&mut first).await, frames);
}

#[tokio::test]
async fn two_resumes_on_one_socket_give_one_replay() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "hello")).await;
    let frames = read_turn(&mut socket).await;
    let mut socket = Socket::connect(&hw).await;
    for _ in 0..2 {
        socket.send_json(&json!({"type": "resume", "session_id": "s1", "after": frames[1]["cursor"]})).await;
    }
    assert_eq!(socket.read_until("message_stop").await, frames[2..]);
    socket.send_json(&json!({"type": "ping"})).await;
    assert_eq!(socket.next_event().await["type"], "pong", "nothing else came");
}

#[tokio::test]
async fn a_resume_from_another_cursor_restarts_there() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "weather")).await;
    let frames = read_turn(&mut socket).await;
    let mut socket = Socket::connect(&hw).await;
    for place in [3, 1, 4] {
        socket.send_json(&json!({"type": "resume", "session_id": "s1", "after": frames[place]["cursor"]})).await;
        assert_eq!(socket.read_until("message_stop").await, frames[place + 1..], "after {place}");
    }
    // A front end that lost what it had asks for the whole turn.
    socket.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    assert_eq!(socket.read_until("message_stop").await, frames);
    // The turn that follows is sent once.
    socket.send_json(&chat_message("s1", "hello")).await;
    let next = read_turn(&mut socket).await;
    assert_ne!(next[0]["message_id"], frames[0]["message_id"]);
    socket.send_json(&json!({"type": "ping"})).await;
    assert_eq!(socket.next_event().await["type"], "pong", "nothing else came");
}

#[tokio::test]
async fn a_restart_in_mid_text_loses_nothing() {
    let mut hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "story 60")).await;
    let mut had = socket.read_until("content_block_delta").await;
    hw.kill9();
    // What was in flight can still be read.
    while let super::socket::Received::Event(event) = socket.receive().await {
        had.push(event);
    }
    hw.restart();
    let last = had.last().unwrap()["cursor"].clone();
    had.extend(resumed(&hw, "s1", Some(&last)).await);
    assert_eq!(had, resumed(&hw, "s1", None).await);
    let task = hw.get(&format!("/v1/tasks/{}", had[0]["message_id"].as_str().unwrap())).await.json();
    assert_eq!(final_text(&had), super::last_message_text(&task));
}
