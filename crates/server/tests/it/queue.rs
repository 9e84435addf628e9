//! The queue of a thread, `after_turn` cancels, and requests without input.

use crate::broker_fixture::{broker_server, placed_orders, wait_outcome};
use crate::harness::Server;
use serde_json::{Value, json};

fn id(task: &Value) -> &str {
    task["task_id"].as_str().unwrap()
}

async fn begin(hw: &Server, input: &str, more: Value) -> Value {
    let mut body = json!({"model": "broker", "input": input});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    hw.create_task(body).await
}

async fn cancel(hw: &Server, task: &Value, mode: &str) {
    let reply = hw.post(&format!("/v1/tasks/{}/cancel", id(task)), json!({"mode": mode})).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
}

/// Waits until the task has produced text.
async fn speaking(hw: &Server, task: &Value) {
    hw.open_stream(&format!("/v1/tasks/{}/events", id(task))).await.read_until("task.text.delta").await;
}

#[tokio::test]
async fn the_queue_of_a_thread_is_listed_and_cancelled_runs_leave_it() {
    let hw = broker_server("");
    let first = begin(&hw, "count 5000", json!({})).await;
    let thread = json!({"thread_id": first["thread_id"]});
    speaking(&hw, &first).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.insert(0, begin(&hw, "hello", thread.clone()).await);
    }
    let elsewhere = begin(&hw, "count 5000", json!({})).await;
    let queue = format!("/v1/tasks?status=queued&thread_id={}", first["thread_id"].as_str().unwrap());
    let listed = async || -> Vec<String> {
        let page = hw.get(&queue).await.json();
        page["data"].as_array().unwrap().iter().map(|row| id(row).to_owned()).collect()
    };
    assert_eq!(listed().await, waiting.iter().map(id).collect::<Vec<_>>(), "newest first");

    cancel(&hw, &waiting[1], "immediate").await;
    hw.wait_until("it has left the queue", async || listed().await == [id(&waiting[0]), id(&waiting[2])]).await;
    let gone = hw.get(&format!("/v1/tasks/{}", id(&waiting[1]))).await.json();
    assert_eq!((&gone["status"], &gone["output"]), (&json!("cancelled"), &json!([])));
    cancel(&hw, &first, "immediate").await;
    let (newest, oldest) = (wait_outcome(&hw, &waiting[0]).await.0, wait_outcome(&hw, &waiting[2]).await.0);
    assert!(oldest["ended_at"].as_u64() <= newest["created_at"].as_u64(), "oldest first, one after the other");
    assert_eq!(listed().await, Vec::<String>::new());
    cancel(&hw, &elsewhere, "immediate").await;
}

#[tokio::test]
async fn after_turn_lets_the_turn_end_and_starts_no_other() {
    let hw = broker_server("");
    // A turn without calls is a completed run.
    let talk = begin(&hw, "count 20", json!({})).await;
    speaking(&hw, &talk).await;
    cancel(&hw, &talk, "after_turn").await;
    let (ended, words) = wait_outcome(&hw, &talk).await;
    assert_eq!(ended["status"], "completed");
    assert!(words.ends_with("20 "), "it has said all that it was saying: {words}");
    let frames = hw.frames(&format!("/v1/tasks/{}/events", id(&talk)), None).await;
    assert_eq!(frames.iter().filter(|frame| frame.event == "task.cancelling").count(), 1);

    let order = begin(&hw, "unsure", json!({})).await;
    hw.wait_until("the order is placed", async || placed_orders(&hw).len() == 1).await;
    cancel(&hw, &order, "after_turn").await;
    std::fs::write(hw.path("go"), "").unwrap();
    let (ended, words) = wait_outcome(&hw, &order).await;
    assert_eq!((&ended["status"], words.as_str()), (&json!("cancelled"), ""), "the model is not asked again");
    assert_eq!(ended["output"].as_array().unwrap().last().unwrap()["status"], "completed", "the tool was let end");
    let late = hw.post(&format!("/v1/tasks/{}/cancel", id(&order)), json!({"mode": "after_turn"})).await;
    assert_eq!(late.problem(), (409, "already_ended".to_owned()));
}

#[tokio::test]
async fn a_request_without_input_continues_an_interrupted_run_only() {
    let hw = broker_server("[limits]\nsteps_max = 1");
    let cut = begin(&hw, "count 5000", json!({})).await;
    speaking(&hw, &cut).await;
    cancel(&hw, &cut, "immediate").await;
    wait_outcome(&hw, &cut).await;
    let bare = json!({"model": "broker", "thread_id": cut["thread_id"]});
    let next = hw.create_task(bare.clone()).await;
    speaking(&hw, &next).await;
    let frames =
        hw.open_stream(&format!("/v1/tasks/{}/events", id(&next))).await.read_until("task.started").await.to_owned();
    assert!(frames.contains("\"input\":[]"), "nothing was said anew: {frames}");
    cancel(&hw, &next, "immediate").await;
    wait_outcome(&hw, &next).await;

    // A limit is no normal end either.
    let short = begin(&hw, "unsure", json!({"thread_id": cut["thread_id"]})).await;
    std::fs::write(hw.path("go"), "").unwrap();
    assert_eq!(wait_outcome(&hw, &short).await.0["status"], "incomplete");
    let (ended, words) = wait_outcome(&hw, &hw.create_task(bare.clone()).await).await;
    assert!(words.contains("bought"), "it goes on where the limit was: {ended}");

    let refused = hw.post("/v1/tasks", bare).await;
    assert_eq!(refused.problem(), (422, "no_input".to_owned()), "what has ended well needs no going on");
}

#[tokio::test]
async fn a_run_can_continue_from_any_earlier_one() {
    let hw = broker_server("");
    let first = begin(&hw, "hello", json!({})).await;
    wait_outcome(&hw, &first).await;
    let second = begin(&hw, "count 2", json!({"thread_id": first["thread_id"]})).await;
    wait_outcome(&hw, &second).await;
    // Edited: the new input replaces the second run.
    let edited = begin(&hw, "count 3", json!({"previous": id(&first)})).await;
    let (ended, words) = wait_outcome(&hw, &edited).await;
    assert_eq!((&ended["thread_id"], words.as_str()), (&first["thread_id"], "1 2 3 "));
    let frames = hw.frames(&format!("/v1/tasks/{}/events", id(&edited)), None).await;
    assert_eq!(frames[0].data["task"]["previous"], first["task_id"]);
    // Both stay in the log.
    let runs = hw.get(&format!("/v1/tasks?thread_id={}", first["thread_id"].as_str().unwrap())).await.json();
    assert_eq!(runs["data"].as_array().unwrap().len(), 3);
    let elsewhere = begin(&hw, "hello", json!({})).await;
    let mixed = json!({"model": "broker", "input": "x", "thread_id": elsewhere["thread_id"], "previous": id(&first)});
    assert_eq!(hw.post("/v1/tasks", mixed).await.problem(), (422, "unknown_previous".to_owned()));
}

/// A model that calls the client's tool, and then speaks for a long time.
fn server_that_calls_and_speaks() -> Server {
    let config = "[agents.a]\nmodel = \"mine/a\"\n[providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n";
    let scenarios = "[[scenario]]\n[[scenario.turn]]\nsteps = [{ call = \"pick\", arguments = '{}' }]\n\
        [[scenario.turn]]\nsteps = [{ text = \"word \", repeat = 5000, every_ms = 20 }]\n";
    Server::with_config(config, scenarios)
}

/// Answers the call of a run in one request, and in another continues from that run while it speaks. The second run is
/// queued and cancelled there. Returns what its stream said until it ended.
async fn stream_of_a_cancelled_queued_run(hw: &Server, route: &str, answer: &Value, next: &Value) -> String {
    let open = async |body: &Value| hw.client.post(hw.url(route)).json(body).send().await.unwrap();
    let mut speaking = open(answer).await;
    assert_eq!(speaking.status(), 200);
    let mut said = String::new();
    while !said.contains("word") {
        said.push_str(&String::from_utf8_lossy(&speaking.chunk().await.unwrap().unwrap()));
    }
    let queued = open(next).await;
    assert_eq!(queued.status(), 200);
    let list = hw.get("/v1/tasks?status=queued").await.json();
    let [row] = &list["data"].as_array().unwrap()[..] else { panic!("one run is queued: {list}") };
    cancel(hw, row, "immediate").await;
    // The client has a time-out: a stream that stays open fails the test.
    let text = queued.text().await.unwrap();
    let running = hw.get("/v1/tasks?status=running").await.json();
    assert_eq!(running["data"].as_array().unwrap().len(), 1, "it has not waited for the other run: {running}");
    text
}

#[tokio::test]
async fn a_run_that_is_cancelled_in_the_queue_ends_its_messages_stream_with_an_event() {
    let hw = server_that_calls_and_speaks();
    let tools = json!([{"name": "pick", "input_schema": {"type": "object"}}]);
    let body = |messages: &Value, stream: bool| json!({"model": "a", "max_tokens": 100, "tools": tools, "stream": stream, "messages": messages});
    let ask = json!({"role": "user", "content": "go"});
    let message = hw.post("/v1/messages", body(&json!([ask]), false)).await.json();
    let called = json!({"role": "assistant", "content": message["content"]});
    let result = json!({"type": "tool_result", "tool_use_id": message["content"][0]["id"], "content": "blue"});
    let answer = json!([ask, called, {"role": "user", "content": [result]}]);
    let next = json!([ask, called, {"role": "user", "content": [result]}, {"role": "assistant", "content": "word"},
        {"role": "user", "content": "more"}]);
    let (answer, next) = (body(&answer, true), body(&next, true));
    let text = stream_of_a_cancelled_queued_run(&hw, "/v1/messages", &answer, &next).await;
    let events: Vec<&str> = text.lines().filter(|line| line.starts_with("event:")).collect();
    assert_eq!(events.last(), Some(&"event: error"), "{text}");
    assert!(text.contains("cancelled") && !text.contains("\nid:"), "{text}");
}

#[tokio::test]
async fn a_run_that_is_cancelled_in_the_queue_ends_its_chat_stream_with_an_event() {
    let hw = server_that_calls_and_speaks();
    let tools = json!([{"type": "function", "function": {"name": "pick", "parameters": {"type": "object"}}}]);
    let body =
        |messages: &Value, stream: bool| json!({"model": "a", "tools": tools, "stream": stream, "messages": messages});
    let ask = json!({"role": "user", "content": "go"});
    let reply = hw.post("/v1/chat/completions", body(&json!([ask]), false)).await.json();
    let called = &reply["choices"][0]["message"];
    let result = json!({"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "blue"});
    let answer = json!([ask, called, result]);
    let next =
        json!([ask, called, result, {"role": "assistant", "content": "word"}, {"role": "user", "content": "more"}]);
    let (answer, next) = (body(&answer, true), body(&next, true));
    let text = stream_of_a_cancelled_queued_run(&hw, "/v1/chat/completions", &answer, &next).await;
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let error: Value = serde_json::from_str(data.iter().rev().find(|data| **data != "[DONE]").unwrap()).unwrap();
    assert!(error["error"]["message"].as_str().is_some_and(|message| message.contains("cancelled")), "{text}");
    assert!(!text.contains("\nid:"), "{text}");
}
