//! Streamed or not: the same run.

use super::{asks, events, guide, id, is_terminal, with};
use crate::harness::{Server, SseFrame, parse_frames};
use serde_json::{Value, json};

/// How a run is asked for.
const MODES: [&str; 3] = ["stream", "wait", "neither"];

/// A value without the ids and times of its run.
fn plain(value: &Value, task: &Value) -> Value {
    let suffix = id(task).trim_start_matches("task_");
    let text = value.to_string().replace(suffix, "R").replace(task["thread_id"].as_str().unwrap(), "T");
    let mut value: Value = serde_json::from_str(&text).unwrap();
    forget_times(&mut value);
    value
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !["at", "created_at", "ended_at", "expires_at", "duration_ms"].contains(&&**name));
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_times),
        _ => {}
    }
}

/// A run's object and its records, without its ids and times.
async fn object_and_records(hw: &Server, task: &Value) -> (Value, Vec<Value>) {
    let frames = hw.frames(&events(id(task)), None).await;
    let object = hw.get(&format!("/v1/tasks/{}", id(task))).await.json();
    (plain(&object, task), frames.iter().map(|frame| plain(&frame.data, task)).collect())
}

/// The object of a run in this mode, once it has ended or paused, and its frames if it was streamed.
async fn run_in_mode(hw: &Server, input: &str, mode: &str) -> (Value, Option<Vec<SseFrame>>) {
    let body = asks(input);
    if mode == "neither" {
        let task = hw.create_task(body).await;
        return (hw.wait_ended(id(&task)).await, None);
    }
    let reply = hw.post("/v1/tasks", with(body, mode, true)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    if mode == "wait" {
        return (reply.json(), None);
    }
    let frames = parse_frames(&reply.text);
    let task = frames[0].data["task_id"].as_str().unwrap();
    (hw.get(&format!("/v1/tasks/{task}")).await.json(), Some(frames))
}

/// A streamed and a non-streamed run of the same script give the same items, end, tokens and history.
#[tokio::test]
async fn a_run_is_the_same_streamed_awaited_or_in_background() {
    let hw = guide();
    for (input, status) in [
        ("look", "completed"),
        ("ask north", "completed"),
        ("hand over", "completed"),
        ("cut short", "incomplete"),
        ("fail", "failed"),
    ] {
        let mut runs = Vec::new();
        for mode in MODES {
            let (task, streamed) = run_in_mode(&hw, input, mode).await;
            assert_eq!(task["status"], status, "{input} {mode}");
            let (object, records) = object_and_records(&hw, &task).await;
            assert_eq!(plain(&task, &task), object, "{input} {mode}: what was answered is what there is");
            if let Some(frames) = streamed {
                let seen: Vec<Value> = frames.iter().map(|frame| plain(&frame.data, &task)).collect();
                assert_eq!(seen, records, "{input}: what was streamed is what there is");
            }
            let thread = hw.get(&format!("/v1/threads/{}", task["thread_id"].as_str().unwrap())).await.json();
            runs.push((object, records, plain(&thread["usage"], &task)));
        }
        assert!(runs[0].1.len() > 5, "{input}: {:?}", runs[0]);
        assert!(runs[0].2["output_tokens"].as_u64().unwrap() > 0, "{input}: {:?}", runs[0].2);
        assert_eq!(runs[0], runs[1], "{input}");
        assert_eq!(runs[0], runs[2], "{input}");
    }
}

/// Both modes give the same error for the same fault, also when a request is refused.
#[tokio::test]
async fn a_failure_is_the_same_in_every_mode() {
    let hw = guide();
    let mut errors = Vec::new();
    for mode in MODES {
        let (task, frames) = run_in_mode(&hw, "fail", mode).await;
        errors.push(task["error"].clone());
        errors.extend(frames.map(|frames| frames.last().unwrap().data["error"].clone()));
    }
    assert_eq!(errors[0]["code"], "provider_error");
    assert!(errors.len() == 4 && errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    for body in [
        json!({"model": "nobody", "input": "x"}),
        json!({"model": "guide"}),
        json!({"model": "guide", "input": 5}),
        json!({"model": "guide", "input": "x", "previous": "task_1"}),
    ] {
        let mut problems = Vec::new();
        for mode in MODES {
            let body = if mode == "neither" { body.clone() } else { with(body.clone(), mode, true) };
            let reply = hw.post("/v1/tasks", body).await;
            problems.push((reply.problem(), reply.json()["detail"].clone()));
        }
        assert!(problems.iter().all(|problem| *problem == problems[0]), "{problems:?}");
    }
}

/// The paused run, after its approval.
async fn approve(hw: &Server, task: &Value) {
    let task = hw.get(&format!("/v1/tasks/{}", id(task))).await.json();
    assert_eq!(task["status"], "paused", "{task}");
    let path = format!("/v1/tasks/{}/approvals/{}", id(&task), task["pending"][0]["key"].as_str().unwrap());
    let reply = hw.post(&path, json!({"decision": "approve"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}

/// A run that paused in one mode and resumes in the other has the same result.
#[tokio::test]
async fn a_run_that_pauses_in_one_mode_resumes_in_the_other() {
    let hw = guide();
    // Awaited, then streamed from the pause.
    let first = hw.post("/v1/tasks", with(asks("order"), "wait", true)).await.json();
    let mut stream = hw.open_stream(&format!("{}?after={}", events(id(&first)), first["seq"])).await;
    approve(&hw, &first).await;
    let rest = parse_frames(stream.read_to_end().await.unwrap());
    assert_eq!(rest[0].event, "task.resumed", "nothing is told again");
    assert!(is_terminal(rest.last().unwrap()));
    // Streamed, then disconnected: no client is attached while it continues.
    let second = hw.create_task(asks("order")).await;
    let mut stream = hw.open_stream(&events(id(&second))).await;
    stream.read_until("event: task.paused\n").await;
    drop(stream);
    approve(&hw, &second).await;
    let path = format!("/v1/tasks/{}", id(&second));
    hw.wait_until("it ends", async || hw.get(&path).await.json()["status"] == "completed").await;
    // Streamed all the way.
    let third = hw.create_task(asks("order")).await;
    let mut stream = hw.open_stream(&events(id(&third))).await;
    stream.read_until("event: task.paused\n").await;
    approve(&hw, &third).await;
    let all = parse_frames(stream.read_to_end().await.unwrap());

    let runs = [
        object_and_records(&hw, &first).await,
        object_and_records(&hw, &second).await,
        object_and_records(&hw, &third).await,
    ];
    let seen: Vec<Value> = all.iter().map(|frame| plain(&frame.data, &third)).collect();
    assert_eq!((seen, &runs[0].0["status"]), (runs[2].1.clone(), &json!("completed")));
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:#?}");
}

/// A late failure is the last event for every viewer, and never hidden behind a normal end.
#[tokio::test]
async fn a_late_failure_is_the_last_event_for_every_viewer() {
    let hw = guide();
    let (task, streamed) = run_in_mode(&hw, "fail", "stream").await;
    let streamed = streamed.unwrap();
    assert_eq!((streamed.last().unwrap().event.as_str(), &task["status"]), ("task.failed", &json!("failed")));
    assert!(streamed.iter().any(|frame| frame.event == "task.text.delta"), "it was late");
    assert_eq!(streamed.iter().filter(|frame| is_terminal(frame)).count(), 1);
    // Viewers that were disconnected when it happened, at any cursor.
    let path = events(id(&task));
    for (place, frame) in streamed.iter().enumerate().take(streamed.len() - 1) {
        let rest = hw.frames(&path, Some(&frame.id)).await;
        assert_eq!(rest, streamed[place + 1..], "from {}", frame.id);
    }
}
