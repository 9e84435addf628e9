//! CopilotKit's clients, whose messages are AG-UI's.

use super::{AgUiClient, events, interrupt, of_type, refusal, resume, types};
use crate::harness::Server;
use serde_json::json;

const RUN: &str = "/copilotkit/agent/demo/run";

/// Its client keeps an interrupt after an error, and could not send anything any more.
#[tokio::test]
async fn a_late_answer_joins_the_thread() {
    let hw = Server::demo();
    let mut client = AgUiClient { path: RUN, ..AgUiClient::new(&hw, "t-1") };
    let asked = interrupt(&client.say("trade").await);
    let mut other = AgUiClient { path: RUN, run_count: 7, ..AgUiClient::new(&hw, "t-1") };
    other.go(resume(&asked, json!({"approved": true}))).await;
    let told = client.go(resume(&asked, json!({"approved": false}))).await;
    assert_eq!(types(&told), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(client.summary().last().unwrap(), &other.summary().last().unwrap().clone());
    let next = client.say("story 1 fast").await;
    assert_eq!(types(&next).last(), Some(&"RUN_FINISHED"));
}

/// Front ends that know `on_interrupt` alone may send an answer without the interrupt's id.
#[tokio::test]
async fn a_late_answer_in_the_older_form_joins_the_thread() {
    let hw = Server::demo();
    let mut client = AgUiClient { path: RUN, ..AgUiClient::new(&hw, "t-1") };
    let asked = interrupt(&client.say("trade").await);
    let mut other = AgUiClient { path: RUN, run_count: 7, ..AgUiClient::new(&hw, "t-1") };
    other.go(resume(&asked, json!({"approved": true}))).await;
    let late = json!({"forwardedProps": {"command": {"resume": {"approved": false}}}});
    let told = client.go(late.clone()).await;
    assert_eq!(types(&told), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert_eq!(client.summary().last().unwrap(), &other.summary().last().unwrap().clone());
    client.path = "/agui/demo";
    assert_eq!(refusal(&client.send(late.clone()).await), (409, "nothing_pending".to_owned()));
    // Beside a message it is history.
    client.add_message("user", "story 1 fast");
    let next = client.go(late).await;
    assert_eq!((types(&next).last(), of_type(&next, "TEXT_MESSAGE_START").len()), (Some(&"RUN_FINISHED"), 1));
}

#[tokio::test]
async fn a_stop_ends_the_run_without_an_error() {
    let hw = Server::demo();
    let mut client = AgUiClient { path: RUN, ..AgUiClient::new(&hw, "t-1") };
    client.add_message("user", "story 100000");
    let body = client.body(&json!({}));
    let stream = hw.client.post(hw.url(RUN)).json(&body).send().await.unwrap();
    hw.wait_until("the run has begun", async || super::newest_run(&hw).await["status"] == "running").await;
    let stop = "/copilotkit/agent/demo/stop/t-1";
    let stopped = hw.post(stop, json!({"runId": body["runId"]})).await.json();
    assert_eq!((&stopped["stopped"], &stopped["interrupt"]["code"]), (&json!(true), &json!("STOPPED")));
    let told = stream.text().await.unwrap();
    assert!(told.trim_end().ends_with('}') && told.contains(r#""code":"abort""#), "{told}");
    assert_eq!(hw.post("/copilotkit/agent/demo/stop/nothing", json!({})).await.status, 404);
    let next = client.say("story 1 fast").await;
    assert_eq!(types(&next).last(), Some(&"RUN_FINISHED"));
}

#[tokio::test]
async fn only_agents_that_a_user_may_call_are_listed_and_run() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    assert_eq!(hw.get("/copilotkit/info").await.status, 401, "no route is public");
    let ann = crate::auth::create_key(&hw, "ann");
    let hw = hw.with_key(&ann);
    let info = hw.get("/copilotkit/info").await.json();
    assert!(info["agents"].as_object().is_some_and(|agents| agents.contains_key("demo")), "{info}");
    let body = json!({"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]});
    assert_eq!(refusal(&hw.post("/copilotkit/agent/nobody/run", body.clone()).await).0, 404);
    let told = events(&hw.post(RUN, body).await);
    assert_eq!(of_type(&told, "RUN_STARTED").len(), 1);
}
