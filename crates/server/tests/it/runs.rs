//! Several requests to one thread: queues, cancels, more input.

use crate::harness::Server;
use serde_json::{Value, json};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

#[tokio::test]
async fn cancel_ends_a_run_at_once_and_once() {
    let hw = Server::demo();
    let task = hw.start_run("story 5000").await;
    let id = text(&task, "task_id");
    let mut watcher = hw.open_stream(&format!("/v1/tasks/{id}/events")).await;
    watcher.read_until("task.text.delta").await;
    let reply = hw.post(&format!("/v1/tasks/{id}/cancel"), json!({"mode": "immediate"})).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let seen = watcher.read_to_end().await.unwrap();
    assert_eq!(seen.matches("event: task.cancelled").count(), 1);
    let object = hw.get(&format!("/v1/tasks/{id}")).await.json();
    assert_eq!(text(&object, "status"), "cancelled");
    assert_eq!(text(&object["output"][0], "status"), "incomplete");
    let again = hw.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
    assert_eq!(again.problem(), (409, "already_ended".to_owned()));
}

#[tokio::test]
async fn a_cancel_needs_no_body() {
    let hw = Server::demo();
    let task = hw.start_run("story 5000").await;
    let path = format!("/v1/tasks/{}/cancel", text(&task, "task_id"));
    let reply = hw.request(reqwest::Method::POST, &path, &[], None).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    assert_eq!(text(&hw.wait_ended(text(&task, "task_id")).await, "status"), "cancelled");
}

#[tokio::test]
async fn a_busy_thread_processes_its_queue_in_order() {
    let hw = Server::demo();
    let first = hw.start_run("story 40").await;
    let thread = text(&first, "thread_id");
    let mut ids = vec![text(&first, "task_id").to_owned()];
    for _ in 0..3 {
        let next = hw.create_task(json!({"model": "demo", "input": "story 3 fast", "thread_id": thread})).await;
        assert_eq!((text(&next, "status"), text(&next, "thread_id")), ("queued", thread));
        ids.push(text(&next, "task_id").to_owned());
    }
    // A queued task's stream waits for its start.
    let last = hw.frames(&format!("/v1/tasks/{}/events", ids[3]), None).await;
    assert_eq!((last[0].event.as_str(), last.last().unwrap().event.as_str()), ("task.created", "task.completed"));
    let mut watcher = hw.open_stream(&format!("/v1/threads/{thread}/events")).await;
    let all = watcher.read_until(&last.last().unwrap().id).await.to_owned();
    let created: Vec<String> = crate::harness::parse_frames(&all)
        .into_iter()
        .filter(|frame| frame.event == "task.created")
        .map(|frame| frame.data["task_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(created, ids);
}

#[tokio::test]
async fn cancelling_a_queued_run_ends_its_streams() {
    let hw = Server::demo();
    let first = hw.start_run("story 5000").await;
    let thread = text(&first, "thread_id");
    let queued = hw.create_task(json!({"model": "demo", "input": "story 3 fast", "thread_id": thread})).await;
    let id = text(&queued, "task_id");
    // One client streams it, and another waits for it.
    let mut watcher = hw.open_stream(&format!("/v1/tasks/{id}/events")).await;
    watcher.read_until("retry").await;
    let body = json!({"model": "demo", "input": "story 3 fast", "thread_id": thread, "wait": true});
    let waits = hw.post("/v1/tasks", body);
    let gives_up = async {
        let waiting =
            async || hw.get("/v1/tasks?limit=1").await.json()["data"][0]["task_id"].as_str().unwrap().to_owned();
        hw.wait_until("it is in the queue", async || waiting().await != id).await;
        hw.post(&format!("/v1/tasks/{}/cancel", waiting().await), json!({})).await
    };
    let (waited, gave_up) = futures_util::future::join(waits, gives_up).await;
    assert_eq!((gave_up.status, waited.status, text(&waited.json(), "status")), (202, 200, "cancelled"));
    assert_eq!(hw.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.status, 202);
    let ended = watcher.read_to_end().await.unwrap();
    assert!(
        ended.contains("\nevent: task.cancelled\ndata: {") && !ended.contains("id: "),
        "no record is behind it: {ended}"
    );
    assert_eq!(hw.get(&format!("/v1/tasks/{id}/events")).await.status, 204);
    let object = hw.get(&format!("/v1/tasks/{id}")).await.json();
    assert_eq!((text(&object, "status"), object["output"].as_array().unwrap().len()), ("cancelled", 0));
}

#[tokio::test]
async fn a_busy_thread_can_refuse_be_interrupted_or_be_steered() {
    let hw = Server::demo();
    let first = hw.start_run("story 5000").await;
    let thread = text(&first, "thread_id");
    let body =
        |on_busy: &str| json!({"model": "demo", "input": "story 3 fast", "thread_id": thread, "on_busy": on_busy});
    let refused = hw.post("/v1/tasks", body("reject")).await;
    assert_eq!(refused.problem(), (409, "thread_busy".to_owned()));
    assert_eq!(text(&refused.json(), "task_id"), text(&first, "task_id"));
    let steered = hw.post("/v1/tasks", body("steer")).await;
    assert_eq!(
        (steered.status, text(&steered.json(), "task_id").to_owned()),
        (202, text(&first, "task_id").to_owned())
    );
    let next = hw.create_task(body("interrupt")).await;
    assert_eq!(text(&hw.wait_ended(text(&next, "task_id")).await, "status"), "completed");
    assert_eq!(text(&hw.wait_ended(text(&first, "task_id")).await, "status"), "cancelled");
}

#[tokio::test]
async fn more_input_goes_to_the_run_or_starts_the_next() {
    let hw = Server::demo();
    let first = hw.start_run("story 20").await;
    let path = format!("/v1/tasks/{}/input", text(&first, "task_id"));
    let said = hw.post(&path, json!({"input": "and then?"})).await;
    assert_eq!((said.status, text(&said.json(), "task_id").to_owned()), (202, text(&first, "task_id").to_owned()));
    let frames = hw.frames(&format!("/v1/tasks/{}/events", text(&first, "task_id")), None).await;
    assert_eq!(frames.iter().filter(|frame| frame.event == "task.input.added").count(), 1);
    let next = hw.post(&path, json!({"input": "story 2 fast"})).await;
    assert_eq!(next.status, 202, "{}", next.text);
    let next = next.json();
    assert_ne!(text(&next, "task_id"), text(&first, "task_id"));
    assert_eq!(text(&next, "thread_id"), text(&first, "thread_id"));
    assert_eq!(text(&hw.wait_ended(text(&next, "task_id")).await, "status"), "completed");
    let previous = json!({"model": "demo", "input": "story 1 fast", "previous": text(&first, "task_id")});
    let after = hw.create_task(previous).await;
    assert_eq!(text(&after, "thread_id"), text(&first, "thread_id"), "a run names its thread");
}

#[tokio::test]
async fn after_a_kill_an_interrupted_run_continues_by_itself() {
    let mut hw = Server::demo();
    let task = hw.start_run("story 60").await;
    let id = text(&task, "task_id").to_owned();
    let path = format!("/v1/tasks/{id}/events");
    let mut watcher = hw.open_stream(&path).await;
    let seen = crate::harness::parse_frames(watcher.read_until("task.text.delta").await);
    hw.kill9();
    hw.restart();
    let all = hw.frames(&path, None).await;
    assert_eq!(all[..seen.len()], seen[..], "nothing that was seen is lost");
    let ends: Vec<&str> = all
        .iter()
        .map(|frame| frame.event.as_str())
        .filter(|event| ["task.completed", "task.failed", "task.cancelled", "task.incomplete"].contains(event))
        .collect();
    assert_eq!(ends, ["task.completed"]);
    assert!(all.iter().any(|frame| frame.event == "task.recovered"), "what was lost is said");
    let resumed = hw.frames(&path, Some(&seen.last().unwrap().id)).await;
    assert_eq!(resumed[..], all[seen.len()..]);
}
