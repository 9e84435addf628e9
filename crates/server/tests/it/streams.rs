//! Streams: resuming at every cursor, ends, headers, errors.

use crate::harness::{Server, concat_raw_frames, parse_frames};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;

async fn weather(hw: &Server) -> (String, String) {
    let task = hw.start_run("weather").await;
    let id = task["task_id"].as_str().unwrap().to_owned();
    hw.wait_ended(&id).await;
    (id, task["thread_id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn resuming_at_every_cursor_gives_the_same_bytes() {
    let hw = Server::demo();
    let (task, _) = weather(&hw).await;
    let path = format!("/v1/tasks/{task}/events");
    let all = hw.frames(&path, None).await;
    assert!(all.len() > 20);
    let seqs: Vec<u64> = all.iter().map(|frame| frame.data["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=all.len() as u64).collect::<Vec<_>>(), "gap-free");
    for (place, frame) in all.iter().enumerate() {
        let rest = concat_raw_frames(&all[place + 1..]);
        let seq = frame.data["seq"].as_u64().unwrap();
        assert_eq!(concat_raw_frames(&hw.frames(&path, Some(&frame.id)).await), rest, "Last-Event-ID {}", frame.id);
        assert_eq!(concat_raw_frames(&hw.frames(&format!("{path}?after={}", frame.id), None).await), rest);
        assert_eq!(concat_raw_frames(&hw.frames(&format!("{path}?after={seq}"), None).await), rest);
    }
    assert_eq!(concat_raw_frames(&hw.frames(&format!("{path}?after=0"), None).await), concat_raw_frames(&all));
    // The header wins, and an empty one is a browser without a position.
    let last = &all.last().unwrap().id;
    assert_eq!(hw.frames(&format!("{path}?after={last}"), Some(&all[0].id)).await, all[1..]);
    assert_eq!(hw.frames(&format!("{path}?after={last}"), Some("")).await, all);
}

#[tokio::test]
async fn a_live_run_is_the_same_from_every_cursor() {
    let hw = Server::demo();
    let task = hw.start_run("story 60").await;
    let path = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
    let mut live = hw.open_stream(&path).await;
    let seen = parse_frames(live.read_until("task.text.delta").await);
    let resumed = hw.frames(&path, Some(&seen.last().unwrap().id)).await;
    let all = parse_frames(live.read_to_end().await.unwrap());
    assert_eq!(resumed, all[seen.len()..]);
}

#[tokio::test]
async fn a_cursor_at_the_end_of_a_task_yields_nothing() {
    let hw = Server::demo();
    let (task, thread) = weather(&hw).await;
    let path = format!("/v1/tasks/{task}/events");
    let last = hw.frames(&path, None).await.last().unwrap().id.clone();
    let reply = hw.request(Method::GET, &path, &[("last-event-id", &last)], None).await;
    assert_eq!((reply.status, reply.text.as_str()), (204, ""));
    // A cursor after the task, in the same thread, is after its end as well.
    let next = hw.create_task(json!({"model": "demo", "input": "story 2 fast", "thread_id": thread})).await;
    let next = next["task_id"].as_str().unwrap();
    let later = hw.frames(&format!("/v1/tasks/{next}/events"), None).await;
    assert_eq!(hw.get(&format!("{path}?after={}", later[0].id)).await.status, 204);
    // A cursor before a task means its start.
    assert_eq!(hw.frames(&format!("/v1/tasks/{next}/events?after=1"), None).await, later);
    assert_eq!(hw.frames(&format!("/v1/tasks/{next}/events"), Some(&last)).await, later);
}

#[tokio::test]
async fn a_threads_stream_continues_after_its_runs() {
    let hw = Server::demo();
    let (_, thread) = weather(&hw).await;
    let path = format!("/v1/threads/{thread}/events");
    let mut watcher = hw.open_stream(&path).await;
    watcher.read_until("event: task.completed").await;
    let next = hw.create_task(json!({"model": "demo", "input": "story 2 fast", "thread_id": thread})).await;
    let next = next["task_id"].as_str().unwrap();
    let end = hw.frames(&format!("/v1/tasks/{next}/events"), None).await.last().unwrap().id.clone();
    let all = parse_frames(watcher.read_until(&end).await);
    let mut half = hw.open_stream(&format!("{path}?after={}", all[5].id)).await;
    assert_eq!(parse_frames(half.read_until(&end).await), all[6..]);
}

#[tokio::test]
async fn invalid_cursors_are_refused_with_their_code() {
    let hw = Server::demo();
    let (task, thread) = weather(&hw).await;
    let (_, other) = weather(&hw).await;
    let foreign =
        parse_frames(hw.open_stream(&format!("/v1/threads/{other}/events")).await.read_until("task.completed").await)
            [3]
        .id
        .clone();
    for path in [format!("/v1/tasks/{task}/events"), format!("/v1/threads/{thread}/events")] {
        let after = async |text: &str| hw.get(&format!("{path}?after={text}")).await.problem();
        let malformed = [
            "abc",
            "",
            "1.5",
            "%2B1",
            "0x10",
            "%EF%BC%91%EF%BC%92",
            "%205",
            "-1",
            "-9223372036854775808",
            "18446744073709551616",
            "99999999999999999999999",
            "deadbeef-",
            "deadbeef-5x",
            "%00",
            "1%0A2",
            "5.task.1",
        ];
        for text in malformed {
            assert_eq!(after(text).await, (400, "invalid_cursor".to_owned()), "{text}");
        }
        for text in ["abc", "-1", "1.5", "+1", "é", "0x10"] {
            let reply = hw.request(Method::GET, &path, &[("last-event-id", text)], None).await;
            assert_eq!(reply.problem(), (400, "invalid_cursor".to_owned()), "{text}");
        }
        let head: Value = hw.get(&format!("/v1/threads/{thread}")).await.json();
        let head = head["seq"].as_u64().unwrap();
        for ahead in [head + 1, head + 1_000_000_000, u64::MAX] {
            let reply = hw.get(&format!("{path}?after={ahead}")).await;
            assert_eq!(
                (reply.problem(), reply.json()["head"].as_u64()),
                ((409, "cursor_ahead".to_owned()), Some(head))
            );
        }
        assert_eq!(after(&foreign).await, (409, "cursor_foreign".to_owned()));
        assert_eq!(after("00000000-3").await, (409, "cursor_foreign".to_owned()));
        let inner = parse_frames(
            hw.open_stream(&format!("/v1/threads/{thread}/events")).await.read_until("task.started").await,
        )[0]
        .id
        .clone();
        assert_eq!(after(&format!("{inner}.blocks.1")).await, (409, "cursor_foreign".to_owned()));
    }
}

#[tokio::test]
async fn a_client_that_does_not_accept_event_streams_is_refused() {
    let hw = Server::demo();
    let (task, thread) = weather(&hw).await;
    for path in [format!("/v1/tasks/{task}/events"), format!("/v1/threads/{thread}/events")] {
        for accept in ["application/json", "text/html, application/json;q=0.9", "text/event-stream;q=0"] {
            let reply = hw.request(Method::GET, &path, &[("accept", accept)], None).await;
            assert_eq!(reply.problem(), (406, "not_acceptable".to_owned()), "{accept}");
        }
        let head = hw.request(Method::HEAD, &path, &[], None).await;
        assert_eq!(
            (head.status, head.header("content-type"), head.text.as_str()),
            (200, "text/event-stream; charset=utf-8", "")
        );
    }
    for accept in ["*/*", "text/*", "application/json, text/event-stream"] {
        let reply = hw.request(Method::GET, &format!("/v1/tasks/{task}/events"), &[("accept", accept)], None).await;
        assert_eq!(reply.status, 200, "{accept}");
    }
    assert!(hw.get("/metrics").await.text.contains("headwater_streams_open 0"), "nobody is left behind");
}

#[tokio::test]
async fn a_silent_stream_sends_keep_alives() {
    let hw = Server::demo_with("[limits]\nheartbeat_ms = 50");
    let (_, thread) = weather(&hw).await;
    let mut watcher = hw.open_stream(&format!("/v1/threads/{thread}/events")).await;
    watcher.read_until("task.completed").await;
    watcher.read_until("\n\n:\n\n:\n\n:\n\n").await;
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let hw = Server::demo_with("[limits]\nstreams_per_user_max = 2");
    let (task, thread) = weather(&hw).await;
    let path = format!("/v1/threads/{thread}/events");
    let (mut first, mut second) = (hw.open_stream(&path).await, hw.open_stream(&path).await);
    first.read_until("task.completed").await;
    second.read_until("task.completed").await;
    let refused = hw.get(&format!("/v1/tasks/{task}/events")).await;
    assert_eq!((refused.problem(), refused.header("retry-after")), ((429, "too_many_streams".to_owned()), "1"));
    // A request that starts a run only to stream it must not start it: the retry would start another.
    let before = hw.count_threads_and_records().await;
    let said = json!([{"role": "user", "content": "hello"}]);
    for (path, body) in [
        ("/v1/tasks", json!({"model": "demo", "input": "hello", "stream": true})),
        ("/v1/responses", json!({"model": "demo", "input": "hello", "stream": true})),
        ("/v1/messages", json!({"model": "demo", "max_tokens": 9, "messages": said, "stream": true})),
        ("/v1/chat/completions", json!({"model": "demo", "messages": said, "stream": true})),
    ] {
        assert_eq!(hw.post(path, body).await.status, 429, "{path}");
    }
    assert_eq!(hw.count_threads_and_records().await, before);
    drop(first);
    // The server notices at its next poll of the connection, which is at once.
    hw.wait_until("the place is given back", async || hw.get(&format!("/v1/tasks/{task}/events")).await.status == 200)
        .await;
}

#[tokio::test]
async fn a_stalled_reader_is_closed_and_can_resume() {
    let hw = Server::demo_with("[limits]\nwrite_stall_ms = 300");
    // Twelve megabytes: more than the connection buffers.
    let task = hw.start_run("story 40000 fast").await;
    let id = task["task_id"].as_str().unwrap();
    let mut stuck = TcpStream::connect(&hw.address).await.unwrap();
    let request = format!("GET /v1/tasks/{id}/events HTTP/1.1\r\nhost: {}\r\n\r\n", hw.address);
    tokio::io::AsyncWriteExt::write_all(&mut stuck, request.as_bytes()).await.unwrap();
    let all = hw.frames(&format!("/v1/tasks/{id}/events"), None).await;
    // It reads nothing until the server has closed it; then it finds a truncated stream.
    hw.wait_until("it is let go", async || hw.get("/metrics").await.text.contains("headwater_streams_open 0")).await;
    let cut = crate::harness::read_until_closed(&mut stuck, crate::harness::TEST_TIMEOUT).await;
    assert!(!cut.contains("task.completed") && cut.contains("task.created"));
    assert_eq!(all.last().unwrap().event, "task.completed");
}
