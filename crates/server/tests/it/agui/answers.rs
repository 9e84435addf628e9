//! Answers to interrupts and to calls of the client's own tools.

use super::{AgUiClient, RUN, events, interrupt, newest_run, of_type, refusal, resume, text, types};
use crate::harness::Server;
use serde_json::{Value, json};

const PLACED: &str = "Order placed: VNM x100";

fn pick() -> Value {
    json!([{"name": "pick", "description": "Picks a color.", "parameters": {"type": "object"}}])
}

/// The run's own id comes with the answer, and a tool message that stands for it, as CopilotKit does.
#[tokio::test]
async fn an_answer_may_have_the_id_of_the_interrupted_run() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let asked = client.say("trade").await;
    let interrupt = interrupt(&asked);
    let echo = json!({"id": "echo", "role": "tool", "toolCallId": interrupt["toolCallId"],
        "content": "{\"approved\":true}"});
    client.messages.push(echo);
    let mut answer = resume(&interrupt, json!({"approved": true}));
    answer["runId"] = json!("t-1-r1");
    let told = client.go(answer).await;
    assert_eq!(types(&told)[..2], ["RUN_STARTED", "MESSAGES_SNAPSHOT"], "the client's own message has to go");
    assert_eq!(of_type(&told, "TOOL_CALL_RESULT")[0]["content"], PLACED);
    let results: Vec<&Value> = client.messages.iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(client.summary(), super::joins::snapshot(&hw, "t-1").await);
}

#[tokio::test]
async fn an_answer_without_messages_of_its_own_needs_no_snapshot() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let asked = client.say("trade").await;
    let told = client.go(resume(&interrupt(&asked), json!({"approved": false, "reason": "no"}))).await;
    assert_eq!(of_type(&told, "MESSAGES_SNAPSHOT").len(), 0);
    assert_eq!((&told[0]["runId"], &told[0]["parentRunId"]), (&json!("t-1-r2"), &json!("t-1-r1")));
    assert_eq!(client.summary(), super::joins::snapshot(&hw, "t-1").await);
}

#[tokio::test]
async fn a_tool_message_answers_an_approval_or_a_tool_of_the_client() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let asked = client.say("trade").await;
    let call = interrupt(&asked)["toolCallId"].clone();
    client.messages.push(json!({"id": "x", "role": "tool", "toolCallId": call, "content": "{\"accepted\":true}"}));
    let told = client.go(json!({})).await;
    assert_eq!(of_type(&told, "TOOL_CALL_RESULT")[0]["content"], PLACED);

    let mut client = AgUiClient::new(&hw, "t-2");
    client.add_message("user", "client");
    let asked = client.go(json!({"tools": pick(), "protocolVersion": "1.0"})).await;
    let call = asked.last().unwrap()["outcome"]["pendingToolCallIds"][0].clone();
    client.messages.push(json!({"id": "y", "role": "tool", "toolCallId": call, "content": "red"}));
    let body = client.body(&json!({"tools": pick(), "protocolVersion": "1.0"}));
    let first = hw.post(RUN, body.clone()).await;
    let told = events(&first);
    assert_eq!(of_type(&told, "TOOL_CALL_RESULT")[0]["content"], "red");
    client.apply(&told);
    assert_eq!(client.summary(), super::joins::snapshot(&hw, "t-2").await);
    // The request again is the same segment.
    assert_eq!(events(&hw.post(RUN, body).await), told);
}

#[tokio::test]
async fn many_answers_at_once_are_one_decision() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let interrupt = interrupt(&client.say("trade").await);
    let mut bodies: Vec<Value> = Vec::new();
    for n in 0..50 {
        let mut answer = resume(&interrupt, json!(n % 2 == 0));
        answer["runId"] = json!(format!("answer-{n}"));
        bodies.push(client.body(&answer));
    }
    let replies = futures_util::future::join_all(bodies.into_iter().map(|body| hw.post(RUN, body))).await;
    let (given, late): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert_eq!((given.len(), late.len()), (25, 25));
    assert!(late.iter().all(|reply| refusal(reply) == (409, "already_decided".to_owned())));
    let results: Vec<Value> =
        given.iter().map(|reply| of_type(&events(reply), "TOOL_CALL_RESULT")[0]["content"].clone()).collect();
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    let task = newest_run(&hw).await;
    let log = hw.frames(&format!("/v1/tasks/{}/events", text(&task["task_id"])), None).await;
    assert_eq!(log.iter().filter(|frame| frame.event == "task.approval.resolved").count(), 1);
}

#[tokio::test]
async fn an_interrupt_outlives_the_process() {
    let mut hw = Server::demo();
    let interrupt = {
        let mut client = AgUiClient::new(&hw, "t-1");
        interrupt(&client.say("trade").await)
    };
    hw.kill9();
    hw.restart();
    let mut client = AgUiClient::new(&hw, "t-1");
    client.run_count = 1;
    let told = client.go(resume(&interrupt, json!(true))).await;
    assert_eq!(of_type(&told, "TOOL_CALL_RESULT")[0]["content"], PLACED);
}

#[tokio::test]
async fn answers_are_seen_in_other_protocols_and_the_other_way_round() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let asked = interrupt(&client.say("trade").await);
    let task = text(&newest_run(&hw).await["task_id"]).to_owned();
    let path = format!("/v1/tasks/{task}/approvals/{}", text(&asked["id"]));
    assert_eq!(hw.post(&path, json!({"decision": "reject", "message": "no"})).await.status, 200);
    hw.wait_ended(&task).await;
    // Too late, and the same.
    assert_eq!(refusal(&client.send(resume(&asked, json!(true))).await), (409, "already_decided".to_owned()));
    let same = events(&client.send(resume(&asked, json!(false))).await);
    assert_eq!(of_type(&same, "TOOL_CALL_RESULT").len(), 1, "the segment that the answer opened");
    // Beside a new message the late answer is history.
    client.add_message("user", "story 1 fast");
    let told = events(&client.send(resume(&asked, json!(true))).await);
    assert_eq!(of_type(&told, "TEXT_MESSAGE_START").len(), 1);
}

/// A new message in place of an answer cancels the paused run.
#[tokio::test]
async fn a_new_message_cancels_what_waits() {
    let hw = Server::demo();
    let mut client = AgUiClient::new(&hw, "t-1");
    let asked = interrupt(&client.say("trade").await);
    let first = text(&newest_run(&hw).await["task_id"]).to_owned();
    client.say("story 1 fast").await;
    assert_eq!(hw.get(&format!("/v1/tasks/{first}")).await.json()["status"], "cancelled");
    assert_eq!(refusal(&client.send(resume(&asked, json!(true))).await).0, 409);
}

const ASKING: &str = r#"
[agents.helper]
model = "mine/any"
tools = ["ask_user", "order"]

[tools.ask_user]
kind = "builtin"

[tools.order]
kind = "command"
command = ["echo", "never"]
approval = "always"
approval_timeout_seconds = 1
parameters = { type = "object" }

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

const SCENARIOS: &str = r#"
[[scenario]]
match = "ask"
[[scenario.turn]]
steps = [{ call = "ask_user", arguments = '{"message":"Which color?","schema":{"type":"object","properties":{"color":{"type":"string","enum":["red","blue"]}},"required":["color"]}}' }]
[[scenario.turn]]
steps = [{ text = "Thank you." }]

[[scenario]]
match = "order"
[[scenario.turn]]
steps = [{ call = "order", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = "Nobody came." }]
"#;

#[tokio::test]
async fn a_question_is_answered_with_what_its_schema_asks_for() {
    let hw = Server::with_config(ASKING, SCENARIOS);
    let mut client = AgUiClient { path: "/agui/helper", ..AgUiClient::new(&hw, "t-1") };
    let asked = interrupt(&client.say("ask").await);
    assert_eq!((&asked["reason"], &asked["message"]), (&json!("input_required"), &json!("Which color?")));
    assert_eq!(asked["responseSchema"]["required"], json!(["color"]));
    let before = hw.count_threads_and_records().await;
    for payload in [json!({"color": "green"}), json!({}), json!(true), json!("red")] {
        let reply = client.send(resume(&asked, payload.clone())).await;
        assert_eq!(reply.status, 400, "{payload}: {}", reply.text);
    }
    assert_eq!(hw.count_threads_and_records().await, before);
    let told = client.go(resume(&asked, json!({"color": "blue"}))).await;
    assert!(text(&of_type(&told, "TOOL_CALL_RESULT")[0]["content"]).contains("blue"));

    let asked = interrupt(&client.say("ask").await);
    let declined = json!({"resume": [{"interruptId": asked["id"], "status": "cancelled"}]});
    assert_eq!(types(&client.go(declined).await).last(), Some(&"RUN_FINISHED"));
}

/// The tab of 0.0.59 is told no time, because it would refuse to send anything after it.
#[tokio::test]
async fn a_time_out_decides_while_a_tab_is_open() {
    let hw = Server::with_config(ASKING, SCENARIOS);
    let mut client = AgUiClient { path: "/agui/helper", ..AgUiClient::new(&hw, "t-1") };
    let asked = interrupt(&client.say("order").await);
    assert_eq!(asked.get("expiresAt"), None);
    let mut follower = hw.open_stream("/agui/helper/threads/t-1/events").await;
    follower.read_until("Nobody came.").await;
    let task = text(&newest_run(&hw).await["task_id"]).to_owned();
    hw.wait_ended(&task).await;
    assert_eq!(refusal(&client.send(resume(&asked, json!(true))).await), (409, "already_decided".to_owned()));
    let mut other = AgUiClient { path: "/copilotkit/agent/helper/run", run_count: 9, ..AgUiClient::new(&hw, "t-1") };
    other.messages.clone_from(&client.messages);
    other.go(resume(&asked, json!(true))).await;
    assert_eq!(other.summary().last().unwrap(), "assistant: Nobody came.");
}
