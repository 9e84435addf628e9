//! `?format=run-items` on the native routes: another format of the same log, with the same cursors.

use crate::harness::{Server, SseFrame, concat_raw_frames, parse_frames};
use serde_json::{Value, json};

fn names(frames: &[SseFrame]) -> Vec<String> {
    let raw = |frame: &SseFrame| frame.event == "raw_response_event";
    let told = frames.iter().filter(|frame| !raw(frame)).map(|frame| match frame.event.as_str() {
        "run_item_stream_event" => frame.data["name"].as_str().unwrap().to_owned(),
        other => other.to_owned(),
    });
    told.collect()
}

async fn items(hw: &Server, task: &Value) -> Vec<SseFrame> {
    hw.frames(&format!("/v1/tasks/{}/events?format=run-items", task["task_id"].as_str().unwrap()), None).await
}

#[tokio::test]
async fn a_run_is_streamed_as_run_items() {
    let hw = Server::demo();
    let weather = items(&hw, &hw.start_run("weather").await).await;
    assert_eq!(
        names(&weather),
        [
            "agent_updated_stream_event",
            "reasoning_item_created",
            "tool_called",
            "tool_output",
            "message_output_created",
            "run_ended"
        ]
    );
    let handed = names(&items(&hw, &hw.start_run("handoff").await).await);
    let place = handed.iter().position(|name| name == "handoff_occured").unwrap();
    assert_eq!(
        (handed[place - 1].as_str(), handed[place + 1].as_str()),
        ("handoff_requested", "agent_updated_stream_event")
    );
}

#[tokio::test]
async fn the_streams_of_a_new_run_and_its_thread_agree() {
    let hw = Server::demo();
    let body = json!({"model": "demo", "input": "weather", "stream": true});
    let reply = hw.post("/v1/tasks?format=run-items", body).await;
    let told = parse_frames(&reply.text);
    let path = reply.header("location").to_owned();
    assert_eq!(hw.frames(&format!("{path}/events?format=run-items"), None).await, told);
    let thread = hw.get(&path).await.json()["thread_id"].as_str().unwrap().to_owned();
    let mut open = hw.open_stream(&format!("/v1/threads/{thread}/events?format=run-items")).await;
    assert_eq!(parse_frames(open.read_until("run_ended").await).len(), told.len());
}

#[tokio::test]
async fn cursors_are_valid_in_both_formats() {
    let hw = Server::demo();
    let task = hw.start_run("weather").await;
    let path = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
    let (events, items) = (hw.frames(&path, None).await, hw.frames(&format!("{path}?format=run-items"), None).await);
    let inner = |id: &str| id.contains('.');
    let mut bare = 0;
    for (place, item) in items.iter().enumerate() {
        let rest = hw.frames(&format!("{path}?format=run-items"), Some(&item.id)).await;
        assert_eq!(concat_raw_frames(&rest), concat_raw_frames(&items[place + 1..]), "after {}", item.id);
        if inner(&item.id) {
            let reply = hw.get(&format!("{path}?after={}", item.id)).await;
            assert_eq!(reply.problem(), (409, "cursor_foreign".to_owned()), "between two frames of another telling");
        } else {
            bare += 1;
            let rest = hw.frames(&path, Some(&item.id)).await;
            let at = events.iter().position(|event| event.id == item.id).unwrap();
            assert_eq!(concat_raw_frames(&rest), concat_raw_frames(&events[at + 1..]));
        }
    }
    assert!(bare > 10);
    // A cursor that was never sent would skip what follows.
    let inner = items.iter().find(|item| item.id.contains(".1")).unwrap().id.replace(".run-items.1", ".run-items.99");
    let forged = hw.get(&format!("{path}?format=run-items&after={inner}")).await;
    assert_eq!(forged.problem(), (409, "cursor_foreign".to_owned()), "{inner}");
    // And back: from every event of the log.
    for event in &events {
        let rest = hw.frames(&format!("{path}?format=run-items"), Some(&event.id)).await;
        assert!(concat_raw_frames(&items).ends_with(&concat_raw_frames(&rest)));
    }
}

#[tokio::test]
async fn a_pause_keeps_the_stream_open_and_repeats_no_call() {
    let hw = Server::demo();
    let task = hw.start_run("trade").await;
    let id = task["task_id"].as_str().unwrap();
    let mut open = hw.open_stream(&format!("/v1/tasks/{id}/events?format=run-items")).await;
    let paused = parse_frames(open.read_until("event: run_paused").await.to_owned().as_str());
    let waits = hw.get("/v1/approvals?status=pending").await.json()["data"][0]["key"].as_str().unwrap().to_owned();
    open.read_until("\n\n").await;
    assert!(!paused.iter().any(|frame| frame.event == "run_ended"));
    assert_eq!(hw.post(&format!("/v1/tasks/{id}/approvals/{waits}"), json!({"decision": "approve"})).await.status, 200);
    let all = parse_frames(open.read_to_end().await.unwrap());
    let told = names(&all);
    assert_eq!(told.iter().filter(|name| *name == "tool_called").count(), 1);
    assert_eq!(told.iter().filter(|name| *name == "agent_updated_stream_event").count(), 2);
    let paused = all.iter().find(|frame| frame.event == "run_paused").unwrap();
    assert_eq!(paused.data["interruptions"][0]["key"], waits);
    assert_eq!(all.last().unwrap().data["status"], "completed");
}

#[tokio::test]
async fn another_format_and_a_sub_agents_items_are_refused() {
    let hw = Server::demo();
    let task = hw.start_run("help").await;
    let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let call = ended["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_call").unwrap();
    let call = call["call_id"].as_str().unwrap();
    for path in [format!("/v1/tasks/{call}/events?format=run-items"), format!("/v1/tasks/{call}/events?format=x")] {
        assert_eq!(hw.get(&path).await.problem(), (422, "invalid_query".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn a_stream_can_end_at_the_pause_and_interruptions_name_agent_and_task() {
    let hw = Server::demo();
    let body = json!({"model": "demo", "input": "trade", "stream": true});
    let started = hw.post("/v1/tasks?format=run-items&until=pause", body).await;
    let first = parse_frames(&started.text);
    let paused = first.last().unwrap();
    assert_eq!(paused.event, "run_paused", "{}", started.text);
    let id = started.header("location").rsplit('/').next().unwrap();
    let interruption = &paused.data["interruptions"][0];
    assert_eq!((&interruption["agent"], &interruption["task_id"]), (&json!({"name": "demo"}), &json!(id)));

    // From any place before the pause it ends there again, and after it with the run.
    let path = format!("/v1/tasks/{id}/events?format=run-items&until=pause");
    let again = hw.frames(&path, Some(&first[1].id)).await;
    assert_eq!(concat_raw_frames(&again), concat_raw_frames(&first[2..]));
    let key = interruption["key"].as_str().unwrap();
    assert_eq!(hw.post(&format!("/v1/tasks/{id}/approvals/{key}"), json!({"decision": "approve"})).await.status, 200);
    let rest = hw.frames(&path, Some(&paused.id)).await;
    assert_eq!(rest.last().unwrap().event, "run_ended");
    let whole = hw.frames(&format!("/v1/tasks/{id}/events?format=run-items"), None).await;
    assert_eq!(concat_raw_frames(&whole), concat_raw_frames(&first) + &concat_raw_frames(&rest));
    for query in ["until=pause", "format=task&until=pause", "format=run-items&until=end"] {
        let reply = hw.get(&format!("/v1/tasks/{id}/events?{query}")).await;
        assert_eq!(reply.problem(), (422, "invalid_query".to_owned()), "{query}");
    }
}
