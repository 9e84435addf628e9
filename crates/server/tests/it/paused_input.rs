//! Input to a paused run is read in the run's next turn. A run that is cancelled in the queue ends its open streams.

use crate::broker_fixture::broker_server;
use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use reqwest::Method;
use serde_json::{Value, json};

const UP: ProviderDialect = ProviderDialect::Responses;
const TOOL: &str = "\n[tools.work]\nkind = \"command\"\ncommand = [\"echo\", \"bought\"]\nenv_pass = [\"PATH\"]\n\
    approval = \"always\"\n";

/// Calls the first tool that it has, and answers when it has a result or is asked for something else.
async fn working_server() -> (RecordingUpstream, Server) {
    let upstream = RecordingUpstream::start(|dialect, body| match dialect.has_results(body) {
        true => dialect.full_answer("Done."),
        false => dialect.full_call(&dialect.tool_names(body)[0], "{}"),
    })
    .await;
    let config = upstream.agents("tools = [\"work\"]") + "[agents.plain]\nmodel = \"responses/m\"\n" + TOOL;
    let server = Server::with_config(&config, "");
    (upstream, server)
}

/// A run that waits for an approval or for its client, and has got more input.
async fn paused_with_input(hw: &Server, waits_for: &str) -> Value {
    let body = match waits_for {
        "approval" => json!({"model": "responses", "input": "buy A", "wait": true}),
        _ => json!({"model": "plain", "input": "buy A", "wait": true, "tools": [{"name": "locate"}]}),
    };
    let task = hw.post("/v1/tasks", body).await.json();
    assert_eq!((&task["status"], &task["pending"][0]["kind"]), (&json!("paused"), &json!(waits_for)), "{task}");
    let said = hw.post(&path(&task, "input"), json!({"input": "and B, too"})).await;
    assert_eq!((said.status, &said.json()["task_id"]), (202, &task["task_id"]), "{}", said.text);
    task
}

fn path(task: &Value, rest: &str) -> String {
    format!("/v1/tasks/{}/{rest}", task["task_id"].as_str().unwrap())
}

async fn answer(hw: &Server, task: &Value) {
    let pending = &task["pending"][0];
    let reply = match pending["key"].as_str() {
        Some(key) => hw.post(&path(task, &format!("approvals/{key}")), json!({"decision": "approve"})).await,
        None => hw.post(&path(task, "tool_results"), json!([{"call_id": pending["call_id"], "content": "here"}])).await,
    };
    assert!(matches!(reply.status, 200 | 202), "{}", reply.text);
}

async fn run_count(hw: &Server, task: &Value) -> usize {
    let page = hw.get(&format!("/v1/tasks?thread_id={}", task["thread_id"].as_str().unwrap())).await.json();
    page["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn input_to_a_paused_run_is_read_in_its_next_turn() {
    for waits_for in ["approval", "client_tool"] {
        for is_killed in [false, true] {
            let (upstream, mut hw) = working_server().await;
            let task = paused_with_input(&hw, waits_for).await;
            if is_killed {
                hw.kill9();
                hw.restart();
            }
            assert_eq!(hw.get(path(&task, "").trim_end_matches('/')).await.json()["status"], "paused");
            answer(&hw, &task).await;
            let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
            assert_eq!(ended["status"], "completed", "{ended}");
            let asked = upstream.last_request(UP);
            let items: Vec<&str> =
                asked["input"].as_array().unwrap().iter().filter_map(|i| i["type"].as_str()).collect();
            assert_eq!(items.last(), Some(&"message"), "after the result: {asked:#}");
            assert!(asked["input"].as_array().unwrap().last().unwrap().to_string().contains("and B, too"), "{asked:#}");
            let context = format!("{waits_for}, killed: {is_killed}");
            assert_eq!((upstream.requests(UP).len(), run_count(&hw, &task).await), (2, 1), "{context}");
            let frames = hw.frames(&path(&task, "events"), None).await;
            let added = frames.iter().filter(|frame| frame.event == "task.input.added").count();
            assert_eq!(added, 1, "{context}");
        }
    }
}

#[tokio::test]
async fn the_next_run_reads_the_input_of_a_paused_run_that_is_cancelled() {
    let (upstream, hw) = working_server().await;
    let task = paused_with_input(&hw, "client_tool").await;
    assert_eq!(hw.post(&path(&task, "cancel"), json!({})).await.status, 202);
    assert_eq!(hw.wait_ended(task["task_id"].as_str().unwrap()).await["status"], "cancelled");
    hw.wait_until("the next run asks the model", async || upstream.requests(UP).len() == 2).await;
    let asked = upstream.last_request(UP);
    assert!(asked["input"].as_array().unwrap().last().unwrap().to_string().contains("and B, too"), "{asked:#}");
    // The model is called while the records of the run are being written.
    hw.wait_until("the next run is listed", async || run_count(&hw, &task).await == 2).await;
}

/// A thread that is busy, and the body of a request that waits in its queue.
async fn busy_thread(hw: &Server) -> Value {
    let first = hw.create_task(json!({"model": "broker", "input": "count 5000"})).await;
    hw.open_stream(&path(&first, "events")).await.read_until("task.text.delta").await;
    first
}

async fn cancel_queued(hw: &Server, thread: &Value) {
    let queue = format!("/v1/tasks?status=queued&thread_id={}", thread["thread_id"].as_str().unwrap());
    hw.wait_until("it is queued", async || hw.get(&queue).await.json()["data"][0].is_object()).await;
    let queued = hw.get(&queue).await.json()["data"][0].clone();
    assert_eq!(hw.post(&path(&queued, "cancel"), json!({})).await.status, 202);
}

#[tokio::test]
async fn a_run_that_is_cancelled_in_the_queue_ends_its_native_streams_with_an_event() {
    let hw = broker_server("");
    let first = busy_thread(&hw).await;
    for (query, last) in [("", "task.cancelled"), ("?format=run-items", "run_ended")] {
        let queued =
            hw.create_task(json!({"model": "broker", "input": "hello", "thread_id": first["thread_id"]})).await;
        let stream_path = path(&queued, &format!("events{query}"));
        let mut stream = hw.open_stream(&stream_path).await;
        let (ended, ()) = tokio::join!(stream.read_to_end(), cancel_queued(&hw, &first));
        let text = ended.expect("a clean end").to_owned();
        let frame: Vec<&str> = text.split("\n\n").filter(|frame| frame.contains("data: ")).collect();
        assert_eq!(frame.len(), 1, "{text}");
        assert!(frame[0].contains(&format!("event: {last}\n")) && !frame[0].contains("id: "), "{text}");
        let data: Value = serde_json::from_str(frame[0].split_once("data: ").unwrap().1).unwrap();
        assert_eq!(data["type"], last);
        assert!(data["task_id"] == queued["task_id"] || data["status"] == "cancelled", "{data}");
    }
    assert_eq!(hw.post(&path(&first, "cancel"), json!({})).await.status, 202);
}

#[tokio::test]
async fn a_response_that_is_cancelled_in_the_queue_ends_its_stream_with_an_event() {
    let hw = broker_server("");
    let conversation = hw.post("/v1/conversations", json!({})).await.json()["id"].clone();
    let body = |input: &str| json!({"model": "broker", "conversation": conversation, "input": input, "stream": true});
    let begun = hw
        .post(
            "/v1/responses",
            json!({"model": "broker", "conversation": conversation,
        "input": "count 5000", "background": true}),
        )
        .await
        .json();
    let task = json!({"task_id": format!("task_{}", begun["id"].as_str().unwrap().trim_start_matches("resp_"))});
    hw.open_stream(&path(&task, "events")).await.read_until("task.text.delta").await;
    let thread = hw.get(path(&task, "").trim_end_matches('/')).await.json();
    let headers = [("content-type", "application/json")];
    let request = hw.request(Method::POST, "/v1/responses", &headers, Some(body("hello").to_string().into_bytes()));
    let (reply, ()) = tokio::join!(request, cancel_queued(&hw, &thread));
    let data = reply.text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no end: {}", reply.text));
    let last = data.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.incomplete"), &json!("cancelled")));
    assert_eq!(hw.post(&path(&task, "cancel"), json!({})).await.status, 202);
}
