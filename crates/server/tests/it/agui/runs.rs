//! Runs: what starts one, what attaches to one, and what stops one.

use super::{AgUiClient, RUN, events, newest_run, of_type, refusal, text, types};
use crate::harness::Server;
use serde_json::{Value, json};

#[tokio::test]
async fn a_conversation_has_the_ids_of_its_client() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let first = client.say("story 2 fast").await;
    assert_eq!(
        (&first[0]["type"], &first[0]["threadId"], &first[0]["runId"]),
        (&json!("RUN_STARTED"), &json!("t-1"), &json!("t-1-r1"))
    );
    assert_eq!(first[0]["input"]["messages"][0]["id"], "t-1-m0");
    assert_eq!(first.last().unwrap()["type"], "RUN_FINISHED");
    let second = client.say("story 3 fast").await;
    assert_eq!((&second[0]["runId"], &second[0]["input"]["messages"][0]["id"]), (&json!("t-1-r2"), &json!("t-1-m2")));
    let task = newest_run(&hw).await;
    let created = hw.frames(&format!("/v1/tasks/{}/events", text(&task["task_id"])), None).await[0].data.clone();
    let input = created["task"]["input"].as_array().unwrap();
    assert_eq!((input.len(), &input[0]["content"][0]["text"]), (1, &json!("story 3 fast")), "the history is no input");
    let ids = json!({"protocol": "ag-ui", "thread_id": "t-1", "run_id": "t-1-r2", "message_ids": ["t-1-m2"]});
    assert_eq!(created["task"]["client"], ids);
    assert_eq!(hw.count_threads_and_records().await.0, 1);
    // A client that keeps no history sends the new message alone.
    let last = json!([{"id": "alone", "role": "user", "content": "story 1 fast"}]);
    client.go(json!({"messages": last})).await;
    assert_eq!(hw.count_threads_and_records().await.0, 1);
}

/// A connection that broke, or a component that was mounted twice.
#[tokio::test]
async fn the_same_request_again_is_the_same_run() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    client.add_message("user", "story 5 fast");
    let body = client.body(&json!({}));
    let first = hw.post(RUN, body.clone()).await;
    let before = hw.count_threads_and_records().await;
    assert_eq!(hw.post(RUN, body.clone()).await.text, first.text);
    // It may have a part of the answer by then.
    let mut later = body.clone();
    let part = json!({"id": events(&first)[2]["messageId"], "role": "assistant", "content": "word"});
    later["messages"].as_array_mut().unwrap().push(part);
    assert_eq!(hw.post(RUN, later).await.text, first.text);
    let mut other = body;
    other["messages"][0]["content"] = json!("story 6 fast");
    assert_eq!(refusal(&hw.post(RUN, other).await), (409, "idempotency_key_reused".to_owned()));
    assert_eq!(hw.count_threads_and_records().await, before);
}

#[tokio::test]
async fn nothing_new_starts_nothing_but_goes_on_after_a_stop() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    client.say("story 2 fast").await;
    assert_eq!(refusal(&client.send(json!({})).await), (400, "no_input".to_owned()));

    client.add_message("user", "story 100000");
    let body = client.body(&json!({}));
    let stream = hw.client.post(hw.url(RUN)).json(&body).send().await.unwrap();
    let run_id = text(&body["runId"]).to_owned();
    hw.wait_until("the run has begun", async || newest_run(&hw).await["status"] == "running").await;
    assert_eq!(refusal(&client.send(json!({})).await), (400, "no_input".to_owned()), "the run is active");
    let stop = async |body: Value| hw.post("/agui/demo/stop/t-1", body).await.json()["stopped"].clone();
    assert_eq!(stop(json!({"runId": "t-1-r1"})).await, false, "another run");
    assert_eq!(stop(json!({"runId": run_id})).await, true);
    let told = stream.text().await.unwrap();
    assert!(told.contains(r#""code":"abort""#), "{told}");
    let body = client.body(&json!({}));
    let stream = hw.client.post(hw.url(RUN)).json(&body).send().await.unwrap();
    assert_eq!(stream.status(), 200, "a run that was stopped can go on");
    assert_eq!(stop(json!({})).await, true);
    assert!(stream.text().await.unwrap().contains("RUN_STARTED"));
}

#[tokio::test]
async fn messages_to_a_busy_thread_wait_or_go_to_the_active_run() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    client.add_message("user", "slow 3");
    let body = client.body(&json!({}));
    let first = tokio::spawn(hw.client.post(hw.url(RUN)).json(&body).send());
    hw.wait_until("the run has begun", async || newest_run(&hw).await["status"] == "running").await;
    let active = newest_run(&hw).await;
    client.add_message("user", "more");
    let busy = client.send(json!({"forwardedProps": {"headwater": {"on_busy": "reject"}}})).await;
    assert_eq!(refusal(&busy), (409, "thread_busy".to_owned()));
    let steered = events(&client.send(json!({"forwardedProps": {"headwater": {"on_busy": "steer"}}})).await);
    assert_eq!(steered[0]["runId"], "t-1-r1", "the active run's stream");
    assert!(first.await.unwrap().unwrap().text().await.unwrap().contains("RUN_FINISHED"));
    assert_eq!(newest_run(&hw).await["task_id"], active["task_id"]);
}

#[tokio::test]
async fn a_request_brings_a_state_a_context_and_what_the_application_passes_on() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    client.add_message("user", "story 1 fast");
    let context = json!([{"description": "Page", "value": "cart"}]);
    let more = json!({"state": {"n": 1}, "context": context, "forwardedProps": {"theme": 15, "headwater": {}}});
    let body = client.body(&more).to_string().replace("15", "1.50");
    let first = events(&hw.post_text(RUN, body).await);
    client.apply(&first);
    assert_eq!(of_type(&first, "STATE_SNAPSHOT")[0]["snapshot"], json!({"n": 1}));
    let task = newest_run(&hw).await;
    let task = hw.get(&format!("/v1/tasks/{}", text(&task["task_id"]))).await;
    assert!(task.text.contains(r#""metadata":{"forwardedProps":{"theme":1.50}}"#), "{}", task.text);
    let second = client.say("story 1 fast").await;
    assert_eq!(of_type(&second, "STATE_SNAPSHOT")[0]["snapshot"], json!({"n": 1}), "an empty one leaves it");
}

/// The client shows the thread without the runs that an edit replaced.
#[tokio::test]
async fn an_edit_continues_from_an_earlier_run() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    client.say("story 1 fast").await;
    client.say("story 2 fast").await;
    client.messages.truncate(2);
    client.messages.push(json!({"id": "edited", "role": "user", "content": "story 3 fast"}));
    let edited = client.go(json!({"parentRunId": "t-1-r1"})).await;
    assert_eq!(types(&edited).last(), Some(&"RUN_FINISHED"));
    let joined = super::joins::snapshot(&hw, "t-1").await;
    assert_eq!(joined, client.summary());
    client.messages = vec![json!({"id": "first", "role": "user", "content": "story 4 fast"})];
    client.go(json!({"forwardedProps": {"headwater": {"previous": "task_none"}}})).await;
    assert_eq!(super::joins::snapshot(&hw, "t-1").await, client.summary());
    assert_eq!(client.messages.len(), 2);
    let unknown = client.send(json!({"forwardedProps": {"headwater": {"previous": "task_x"}}})).await;
    assert_eq!(refusal(&unknown).0, 400);
}
