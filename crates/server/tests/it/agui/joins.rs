//! Clients that join: a thread as it is, and then what happens.

use super::{AgUiClient, CONNECT, RUN, events, interrupt, message_summary, newest_run, of_type, resume, text, types};
use crate::harness::{Server, parse_frames};
use serde_json::{Value, json};

fn follow(thread: &str) -> String {
    format!("/agui/demo/threads/{thread}/events?protocolVersion=1.0")
}

/// The events until one of this type, of a stream that never ends.
async fn events_until(hw: &Server, path: &str, kind: &str) -> Vec<Value> {
    let mut stream = hw.open_stream(path).await;
    let text = stream.read_until(&format!("\nevent: {kind}\n")).await.to_owned();
    drop(text);
    let text = stream.read_until("\n\n").await;
    parse_frames(text).into_iter().map(|frame| frame.data).collect()
}

/// The messages of a thread for a client that joins, in short.
pub(super) async fn snapshot(hw: &Server, thread: &str) -> Vec<String> {
    let body = json!({"threadId": thread, "runId": "connect", "messages": []});
    let events = events(&hw.post(CONNECT, body).await);
    message_summary(of_type(&events, "MESSAGES_SNAPSHOT")[0]["messages"].as_array().unwrap())
}

#[tokio::test]
async fn a_client_that_joins_has_the_messages_of_one_that_was_there() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    for words in ["weather", "story 5 fast"] {
        client.say(words).await;
    }
    client.messages.retain(|message| message["role"] != "reasoning");
    let mut joined = snapshot(&hw, "t-1").await;
    joined.retain(|line| !line.starts_with("reasoning"));
    assert_eq!(joined, client.summary());
    // The run is over: nothing follows.
    let body = json!({"threadId": "t-1", "runId": "x", "messages": [], "protocolVersion": "1.0"});
    let told = events(&hw.post(CONNECT, body).await);
    assert_eq!(types(&told), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(told[0]["runId"], "t-1-r2", "the id that its client gave");
}

/// The words of the open message go on where the snapshot ends.
#[tokio::test]
async fn a_client_that_connects_in_the_middle_has_every_word_once() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    client.add_message("user", "story 150");
    let body = client.body(&json!({}));
    let mut first = hw.client.post(hw.url(RUN)).json(&body).send().await.unwrap();
    let mut told = String::new();
    while told.matches("TEXT_MESSAGE_CONTENT").count() < 20 {
        told += std::str::from_utf8(&first.chunk().await.unwrap().unwrap()).unwrap();
    }
    drop(first);
    let mut second = AgUiClient { path: CONNECT, ..AgUiClient::new(&hw, "t-1") };
    let joined = second.go(json!({})).await;
    assert_eq!(types(&joined)[..2], ["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    assert_eq!(types(&joined).last(), Some(&"RUN_FINISHED"));
    let task = hw.wait_ended(text(&newest_run(&hw).await["task_id"])).await;
    let answer = text(&task["output"][0]["block_list"][0]["text"]).to_owned();
    assert_eq!(second.summary(), ["user: story 150".to_owned(), format!("assistant: {answer}")]);
}

#[tokio::test]
async fn who_follows_a_thread_sees_the_next_runs_and_can_resume() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let asked = client.say("trade").await;
    let mut follower = hw.open_stream(&follow("t-1")).await;
    let prelude = follower.read_until("RUN_FINISHED").await.to_owned();
    assert!(prelude.contains("\"interrupts\"") && !prelude.contains("\nid:"), "{prelude}");
    client.go(resume(&interrupt(&asked), json!(true))).await;
    let all = follower.read_until("\"outcome\":{\"type\":\"success\"").await.to_owned();
    let all = parse_frames(&format!("{all}\n\n"));
    let events: Vec<Value> = all.iter().map(|frame| frame.data.clone()).collect();
    assert_eq!(of_type(&events, "TOOL_CALL_RESULT").len(), 1, "{:?}", types(&events));
    let mut second = AgUiClient::new(&hw, "t-1");
    second.apply(&events);
    assert_eq!(second.summary(), snapshot(&hw, "t-1").await);
    // From a cursor the same frames come again.
    let with_id: Vec<_> = all.iter().filter(|frame| !frame.id.is_empty()).collect();
    let middle = with_id[2];
    let resumed = hw.open_stream(&format!("{}&after={}", follow("t-1"), middle.id)).await;
    let mut resumed = resumed;
    let rest = resumed.read_until("\"outcome\":{\"type\":\"success\"").await.to_owned();
    let rest: Vec<String> = parse_frames(&format!("{rest}\n\n")).into_iter().map(|frame| frame.id).collect();
    let expected: Vec<String> = with_id[3..].iter().map(|frame| frame.id.clone()).collect();
    assert_eq!(rest, expected);
}

#[tokio::test]
async fn a_thread_of_another_protocol_is_joined_by_its_id() {
    let hw = Server::demo();
    let task = hw.post("/v1/tasks", json!({"model": "demo", "input": "story 3 fast", "wait": true})).await.json();
    let thread = text(&task["thread_id"]).to_owned();
    let joined = snapshot(&hw, &thread).await;
    assert_eq!(joined[0], "user: story 3 fast");
    let told = events_until(&hw, &follow(&thread), "RUN_FINISHED").await;
    assert_eq!(told[0]["threadId"], thread);
    let mut client = AgUiClient::new(&hw, &thread);
    client.say("story 1 fast").await;
    assert_eq!(hw.count_threads_and_records().await.0, 1);
    let shown = snapshot(&hw, &thread).await;
    assert_eq!(shown.len(), 4, "{shown:?}");
}

/// An agent whose runs start when there is a file `go`.
const HELD: &str = r#"
[agents.held]
model = "scripted/demo"
input_hook = { command = ["sh", "-c", "cat > /dev/null; until [ -e go ]; do sleep 0.02; done; echo '{}'"] }
"#;

/// A page that is loaded again in the moment after a message was sent shows the answer.
#[tokio::test]
async fn a_client_that_connects_before_the_first_record_follows_the_run() {
    let hw = Server::demo_with(HELD);
    let mut client = AgUiClient { path: "/agui/held", ..AgUiClient::new(&hw, "t-1") };
    client.add_message("user", "story 3 fast");
    let body = client.body(&json!({}));
    let first = hw.client.post(hw.url("/agui/held")).json(&body).send().await.unwrap();
    assert_eq!(newest_run(&hw).await["status"], "queued");
    let connected = hw.client.post(hw.url(CONNECT)).json(&json!({"threadId": "t-1"})).send().await.unwrap();
    std::fs::write(hw.path("go"), "").unwrap();
    let frames = |text: String| parse_frames(&text).into_iter().map(|frame| frame.raw).collect::<Vec<String>>();
    let expected = frames(first.text().await.unwrap());
    assert_eq!(expected.last().map(|frame| frame.contains("RUN_FINISHED")), Some(true));
    assert_eq!(frames(connected.text().await.unwrap()), expected);
}

/// One that is cancelled there has no record, and its client is told nevertheless.
#[tokio::test]
async fn a_run_that_is_stopped_in_the_queue_ends_its_streams() {
    let hw = Server::demo_with(HELD);
    let mut client = AgUiClient::new(&hw, "t-1");
    client.add_message("user", "story 3 fast");
    let body = client.body(&json!({}));
    let first = hw.client.post(hw.url("/agui/held")).json(&body).send().await.unwrap();
    let stopped = hw.post("/agui/held/stop/t-1", json!({"runId": "t-1-r1"})).await.json();
    assert_eq!(stopped["stopped"], true);
    let told = first.text().await.unwrap();
    let types: Vec<String> = parse_frames(&told).into_iter().map(|frame| frame.event).collect();
    assert_eq!(types, ["RUN_STARTED", "RUN_ERROR"], "{told}");
    std::fs::write(hw.path("go"), "").unwrap();
}
