//! The session of a socket, and messages to a busy session.

use super::socket::Socket;
use super::{chat_message, frame_types, read_turn};
use crate::harness::Server;
use serde_json::{Value, json};

#[tokio::test]
async fn a_session_without_an_id_gets_one_and_continues() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&json!({"type": "chat", "content": "hello"})).await;
    let name = read_turn(&mut socket).await[0]["session_id"].as_str().unwrap().to_owned();
    assert!(name.starts_with("thr_"), "{name}");
    socket.send_json(&json!({"type": "chat", "content": "hello"})).await;
    assert_eq!(read_turn(&mut socket).await[0]["session_id"], name, "the socket has a session now");
    let mut other = Socket::connect(&hw).await;
    other.send_json(&chat_message(&name, "hello")).await;
    assert_eq!(read_turn(&mut other).await[0]["session_id"], name);
    other.send_json(&json!({"type": "chat", "session_id": "other", "content": "hello"})).await;
    assert_eq!(read_turn(&mut other).await[0]["session_id"], "other", "another name is another session");
    assert_eq!(hw.count_threads_and_records().await.0, 2);
}

#[tokio::test]
async fn a_socket_follows_one_session_at_a_time() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("one", "story 200")).await;
    let first = socket.read_until("content_block_delta").await[0]["message_id"].clone();
    socket.send_json(&chat_message("two", "hello")).await;
    let frames = socket.read_until("message_start").await;
    assert!(frames[..frames.len() - 1].iter().all(|frame| frame["message_id"] == first));
    let second = frames.last().unwrap()["message_id"].clone();
    let rest = socket.read_until("message_stop").await;
    assert!(rest.iter().all(|frame| frame["message_id"] == second), "nothing of the first session any more");
}

#[tokio::test]
async fn a_busy_session_queues_the_next_turn() {
    let hw = Server::demo();
    let mut first = Socket::connect(&hw).await;
    first.send_json(&chat_message("s1", "story 20")).await;
    first.read_until("message_start").await;
    first.send_json(&chat_message("s1", "hello")).await;
    // The order of messages on two sockets is undefined.
    hw.wait_until("it waits", async || hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len() == 2).await;
    // A client on another socket sees its own turn, and nothing before it.
    let mut second = Socket::connect(&hw).await;
    second.send_json(&chat_message("s1", "story 3 fast")).await;
    first.read_until("message_stop").await;
    let queued = read_turn(&mut first).await;
    let third = read_turn(&mut first).await;
    assert_ne!(queued[0]["message_id"], third[0]["message_id"]);
    assert_eq!(read_turn(&mut second).await, third);
    assert_eq!(frame_types(&third).iter().filter(|kind| **kind == "content_block_delta").count(), 3);
}

#[tokio::test]
async fn joining_a_running_session_does_not_affect_others() {
    let hw = Server::demo();
    let mut first = Socket::connect(&hw).await;
    first.send_json(&chat_message("s1", "story 30")).await;
    let mut seen = first.read_until("content_block_delta").await;
    let mut second = Socket::connect(&hw).await;
    second.send_json(&chat_message("s1", "hello")).await;
    // The first one resumes while the second is at the live end of the same session.
    let mut third = Socket::connect(&hw).await;
    third.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    seen.extend(first.read_until("message_stop").await);
    assert_eq!(third.read_until("message_stop").await, seen);
    assert_eq!(read_turn(&mut second).await, read_turn(&mut third).await);
}

#[tokio::test]
async fn unknown_members_are_ignored() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    let own = json!({"message_id": "m1", "metadata": {"page": 3}, "timestamp": 1.5});
    let send = async |socket: &mut Socket, mut message: Value| {
        message.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        socket.send_json(&message).await;
    };
    send(&mut socket, json!({"type": "ping"})).await;
    assert_eq!(socket.next_event().await, json!({"type": "pong"}));
    send(&mut socket, chat_message("s1", "hello")).await;
    let frames = read_turn(&mut socket).await;
    let mut socket = Socket::connect(&hw).await;
    send(&mut socket, json!({"type": "resume", "session_id": "s1"})).await;
    assert_eq!(read_turn(&mut socket).await, frames);
    send(&mut socket, chat_message("s1", "trade")).await;
    let asked = socket.read_until("content_block_start").await;
    let mut asked = asked.into_iter().next_back().unwrap();
    while asked["content_block"]["type"] != "approval_request" {
        asked = socket.next_event().await;
    }
    let key = &asked["content_block"]["approval_key"];
    let decisions = json!([{"type": "approve"}]);
    send(
        &mut socket,
        json!({"type": "approval_response", "session_id": "s1", "approval_key": key, "decisions": decisions}),
    )
    .await;
    socket.read_until("message_stop").await;
}

#[tokio::test]
async fn a_stop_may_name_its_session() {
    let hw = Server::demo();
    let mut runs = Vec::new();
    let mut sockets = Vec::new();
    for session in ["one", "two"] {
        let mut socket = Socket::connect(&hw).await;
        socket.send_json(&chat_message(session, "story 2000")).await;
        runs.push(socket.read_until("content_block_delta").await[0]["message_id"].as_str().unwrap().to_owned());
        sockets.push(socket);
    }
    // A socket that follows nothing, and one that follows another session.
    let mut idle = Socket::connect(&hw).await;
    idle.send_json(&json!({"type": "stop", "session_id": "one"})).await;
    assert_eq!(hw.wait_ended(&runs[0]).await["status"], "cancelled");
    assert_eq!(hw.get(&format!("/v1/tasks/{}", runs[1])).await.json()["status"], "running");
    sockets[0].send_json(&json!({"type": "stop", "session_id": "two"})).await;
    assert_eq!(hw.wait_ended(&runs[1]).await["status"], "cancelled");
    idle.send_json(&json!({"type": "stop", "session_id": "unknown"})).await;
    assert_eq!(idle.next_event().await["code"], "not_found");
}

#[tokio::test]
async fn a_stop_of_a_queued_chat_ends_that_chat_and_nothing_else() {
    let hw = Server::demo();
    let mut first = Socket::connect(&hw).await;
    first.send_json(&chat_message("s1", "story 150")).await;
    let running = first.read_until("content_block_delta").await[0]["message_id"].clone();
    for stop in [json!({"type": "stop"}), json!({"type": "stop", "session_id": "s1"})] {
        let mut second = Socket::connect(&hw).await;
        second.send_json(&chat_message("s1", "hello")).await;
        second.send_json(&stop).await;
        let frames = read_turn(&mut second).await;
        assert_ne!(frames[0]["message_id"], running);
        assert_eq!(frames[frames.len() - 2]["delta"]["stop_reason"], "user_stopped", "{frames:#?}");
        assert!(frames.iter().all(|frame| frame["cursor"].is_null()), "no record stands behind them: {frames:#?}");
        let queued = hw.get(&format!("/v1/tasks/{}", frames[0]["message_id"].as_str().unwrap())).await.json();
        assert_eq!(queued["status"], "cancelled");
        // Nothing of its own is left to be stopped. The next turn is its own again.
        second.send_json(&stop).await;
        second.send_json(&chat_message("s1", "hello")).await;
        second.send_json(&stop).await;
        assert_ne!(read_turn(&mut second).await[0]["message_id"], frames[0]["message_id"]);
    }
    first.read_until("message_stop").await;
    let ended = hw.get(&format!("/v1/tasks/{}", running.as_str().unwrap())).await.json();
    assert_eq!(ended["status"], "completed", "the other tab's run goes on");
}

#[tokio::test]
async fn a_stop_ends_the_active_run_and_the_queue() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "story 2000")).await;
    socket.read_until("content_block_delta").await;
    socket.send_json(&chat_message("s1", "hello")).await;
    socket.send_json(&json!({"type": "stop"})).await;
    let frames = socket.read_until("message_stop").await;
    let reason = &frames[frames.len() - 2]["delta"]["stop_reason"];
    assert_eq!(reason, "user_stopped");
    let terminal = frames.iter().find(|frame| !frame["delta"]["extras"].is_null()).unwrap();
    assert_eq!(terminal["delta"]["extras"]["block_subtype"], "user_stopped");
    socket.send_json(&json!({"type": "stop"})).await;
    socket.send_json(&chat_message("s1", "hello")).await;
    assert_eq!(socket.next_event().await["type"], "message_start", "the one that waited never began");
    let runs = hw.get("/v1/tasks").await.json();
    let cancelled = runs["data"].as_array().unwrap().iter().filter(|run| run["status"] == "cancelled").count();
    assert_eq!(cancelled, 2, "{runs}");
}

#[tokio::test]
async fn a_deleted_session_is_reported_as_gone() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&chat_message("s1", "hello")).await;
    read_turn(&mut socket).await;
    let thread = hw.get("/v1/threads").await.json()["data"][0]["thread_id"].as_str().unwrap().to_owned();
    hw.request(reqwest::Method::DELETE, &format!("/v1/threads/{thread}"), &[], None).await;
    let error = socket.next_event().await;
    assert_eq!((&error["code"], &error["session_id"]), (&json!("not_found"), &json!("s1")));
    socket.send_json(&chat_message("s1", "hello")).await;
    assert_eq!(read_turn(&mut socket).await[0]["session_id"], "s1", "the name is free again");
}

#[tokio::test]
async fn the_default_agent_is_the_last_one_or_the_entry_agent() {
    let agent_of = async |hw: &Server, frames: &[Value]| {
        hw.get(&format!("/v1/tasks/{}", frames[0]["message_id"].as_str().unwrap())).await.json()["agent"].clone()
    };
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    for (message, agent) in [
        (json!({"type": "chat", "session_id": "s1", "content": "hello", "agent": "specialist"}), "specialist"),
        (json!({"type": "chat", "session_id": "s1", "content": "hello"}), "specialist"),
        (json!({"type": "chat", "session_id": "s2", "content": "hello"}), "demo"),
    ] {
        socket.send_json(&message).await;
        let frames = read_turn(&mut socket).await;
        assert_eq!(agent_of(&hw, &frames).await, agent, "{message}");
    }
    let config = "[agents.aide]\nmodel = \"p/aide\"\ndescription = \"Helps.\"\n[agents.zoe]\nmodel = \"p/zoe\"\n\
        tools = [\"aide\"]\n[providers.p]\nkind = \"scripted\"\nfile = \"scenarios.toml\"";
    let hw = Server::with_config(config, "[[scenario]]\n[[scenario.turn]]\nsteps = [{ text = \"Hi.\" }]");
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&json!({"type": "chat", "content": "hello"})).await;
    let frames = read_turn(&mut socket).await;
    assert_eq!(agent_of(&hw, &frames).await, "zoe");
}
