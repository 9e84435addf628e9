//! Leaving and coming back: nothing is missed, nothing comes twice.

use super::client::Socket;
use super::{answer, chat, turn};
use crate::harness::Server;
use serde_json::{Value, json};

async fn resumed(hw: &Server, session: &str, after: Option<&Value>) -> Vec<Value> {
    let mut socket = Socket::open(hw).await;
    let mut message = json!({"type": "resume", "session_id": session});
    if let Some(after) = after {
        message["after"] = after.clone();
    }
    socket.say(&message).await;
    socket.until("message_stop").await
}

#[tokio::test]
async fn whoever_comes_back_gets_the_rest_from_every_place() {
    let hw = Server::demo();
    let mut socket = Socket::open(&hw).await;
    socket.say(&chat("s1", "weather")).await;
    let frames = turn(&mut socket).await;
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
async fn leaving_changes_nothing_and_a_live_run_can_be_joined() {
    let hw = Server::demo();
    let mut socket = Socket::open(&hw).await;
    socket.say(&chat("s1", "story 100")).await;
    let mut had = socket.until("content_block_delta").await;
    drop(socket);
    let last = had.last().unwrap()["cursor"].clone();
    had.extend(resumed(&hw, "s1", Some(&last)).await);
    assert_eq!(resumed(&hw, "s1", None).await, had);
    let task = hw.ended(had[0]["message_id"].as_str().unwrap()).await;
    assert_eq!(task["status"], "completed");
    assert_eq!(answer(&had), super::last_words(&task));
}

#[tokio::test]
async fn attaching_before_the_first_token_gives_an_open_stream() {
    let hw = Server::demo();
    let mut first = Socket::open(&hw).await;
    first.say(&chat("s1", "slow 1")).await;
    // Two sockets, one conversation; the second comes when there is a session and nothing more.
    let mut second = Socket::open(&hw).await;
    let frames = loop {
        second.say(&json!({"type": "resume", "session_id": "s1"})).await;
        let frame = second.next().await;
        if frame["type"] == "message_start" {
            let mut frames = vec![frame];
            frames.extend(second.until("message_stop").await);
            break frames;
        }
        assert_eq!(frame["code"], "not_found");
    };
    assert_eq!(turn(&mut first).await, frames);
}

#[tokio::test]
async fn two_resumes_on_one_socket_give_one_replay() {
    let hw = Server::demo();
    let mut socket = Socket::open(&hw).await;
    socket.say(&chat("s1", "hello")).await;
    let frames = turn(&mut socket).await;
    let mut socket = Socket::open(&hw).await;
    for _ in 0..2 {
        socket.say(&json!({"type": "resume", "session_id": "s1", "after": frames[1]["cursor"]})).await;
    }
    assert_eq!(socket.until("message_stop").await, frames[2..]);
    socket.say(&json!({"type": "ping"})).await;
    assert_eq!(socket.next().await["type"], "pong", "nothing else came");
}

#[tokio::test]
async fn a_restart_in_mid_sentence_loses_nothing() {
    let mut hw = Server::demo();
    let mut socket = Socket::open(&hw).await;
    socket.say(&chat("s1", "story 60")).await;
    let mut had = socket.until("content_block_delta").await;
    hw.kill9();
    // What was on its way is still to be read.
    while let super::client::Got::Event(event) = socket.got().await {
        had.push(event);
    }
    hw.restart();
    let last = had.last().unwrap()["cursor"].clone();
    had.extend(resumed(&hw, "s1", Some(&last)).await);
    assert_eq!(had, resumed(&hw, "s1", None).await);
    let task = hw.get(&format!("/v1/tasks/{}", had[0]["message_id"].as_str().unwrap())).await.json();
    assert_eq!(answer(&had), super::last_words(&task));
}
