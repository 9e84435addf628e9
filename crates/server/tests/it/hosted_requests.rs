//! What a provider wants others to do: approve a call of a tool of its own, or operate a computer. Every protocol that can
//! answer does so after a `kill -9`, and the provider gets its own items back with the answers.

use crate::blocks::socket::Socket;
use crate::fake_provider::dialect::{ProviderDialect, sse_event};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::{Server, parse_frames};
use crate::responses::{create_response, output_text};
use serde_json::{Value, json};

const AGENTS: [&str; 6] = ["asks", "thrice", "loops", "screen", "screens", "elsewhere"];
/// A picture of one pixel.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn question(number: usize) -> Value {
    let id = format!("mcpr_{number}");
    json!({"type": "mcp_approval_request", "id": id, "name": "roll", "server_label": "dice", "arguments": "{\"n\":6}"})
}

fn reasoning() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed", "status": "completed"})
}

fn computer_call(agent: &str) -> Value {
    let check = json!({"id": "sc_1", "code": "malicious_instructions", "message": "Take care."});
    let mut call = json!({"type": "computer_call", "id": "cu_1", "call_id": "call_up", "status": "completed",
        "pending_safety_checks": [check]});
    match agent {
        "screen" => call["action"] = json!({"type": "click", "x": 1, "y": 2}),
        _ => call["actions"] = json!([{"type": "click", "x": 1, "y": 2}]),
    }
    call
}

/// A complete answer with these items.
fn answer_with(items: &[Value]) -> String {
    let d = ProviderDialect::Responses;
    let event = |kind: &str, index: usize, item: &Value| {
        sse_event(&json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item}))
    };
    let items = items.iter().enumerate();
    let items = items.map(|(index, item)| event("added", index, item) + &event("done", index, item));
    d.answer_start() + &items.collect::<String>() + &d.terminal_event(false, 9, 4)
}

fn count(body: &Value, kind: &str) -> usize {
    body["input"].as_array().into_iter().flatten().filter(|item| item["type"] == kind).count()
}

/// The provider: what it sends depends on the model, and on what it was told.
fn answer(dialect: ProviderDialect, body: &Value) -> String {
    let agent = body["model"].as_str().unwrap();
    let decided = count(body, "mcp_approval_response");
    let is_shown = count(body, "computer_call_output") > 0;
    match (dialect, agent, decided) {
        (ProviderDialect::Responses, "asks", 0) => answer_with(&[reasoning(), question(1)]),
        (ProviderDialect::Responses, "thrice", 0) => answer_with(&[question(1), question(2), question(3)]),
        (ProviderDialect::Responses, "loops", 0..3) => answer_with(&[question(decided + 1)]),
        (ProviderDialect::Responses, "screen" | "screens", _) if !is_shown => answer_with(&[computer_call(agent)]),
        (ProviderDialect::Responses, "asks", _) => {
            let approved = body["input"].as_array().unwrap().iter().any(|item| item["approve"] == true);
            let call = json!({"type": "mcp_call", "id": "mcp_1", "name": "roll", "server_label": "dice", "output": "4",
                "arguments": "{\"n\":6}", "approval_request_id": "mcpr_1", "error": null, "status": "completed"});
            let text = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Done.", "annotations": []}]});
            answer_with(&if approved { vec![call, text] } else { vec![text] })
        }
        (dialect, ..) => dialect.full_answer("Done."),
    }
}

async fn start() -> (RecordingUpstream, Server) {
    let upstream = RecordingUpstream::start(answer).await;
    let agents = AGENTS.map(|name| match name {
        "elsewhere" => "[agents.elsewhere]\nmodel = \"chat/elsewhere\"\n".to_owned(),
        name => format!("[agents.{name}]\nmodel = \"responses/{name}\"\n"),
    });
    let server = Server::with_config(&(upstream.providers() + &agents.concat()), "");
    (upstream, server)
}

/// What the provider was told last, without what the user said.
fn told(upstream: &RecordingUpstream) -> Vec<Value> {
    let input = upstream.last_request(ProviderDialect::Responses)["input"].take();
    let Value::Array(items) = input else { panic!("{input}") };
    items.into_iter().filter(|item| item["type"] != "message").collect()
}

fn response_to(number: usize, approve: bool, reason: Option<&str>) -> Value {
    let id = format!("mcpr_{number}");
    let mut response = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": approve});
    if let Some(reason) = reason {
        response["reason"] = reason.into();
    }
    response
}

fn restart(hw: &mut Server) {
    hw.kill9();
    hw.restart();
}

/// Starts a run and waits until it is paused.
async fn start_paused(hw: &Server, agent: &str) -> Value {
    let task = hw.create_task(json!({"model": agent, "input": "go"})).await;
    wait_paused(hw, &task).await
}

async fn wait_paused(hw: &Server, task: &Value) -> Value {
    let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
    hw.wait_until("it waits", async || hw.get(&path).await.json()["status"] == "paused").await;
    hw.get(&path).await.json()
}

async fn decide(hw: &Server, pending: &Value, decision: Value) -> (u16, Value) {
    let path = "/v1/tasks/".to_owned() + pending["task_id"].as_str().unwrap();
    let reply = hw.post(&format!("{path}/approvals/{}", pending["key"].as_str().unwrap()), decision).await;
    (reply.status, reply.json())
}

#[tokio::test]
async fn the_native_protocol_answers_a_question_of_the_provider() {
    let (upstream, mut hw) = start().await;
    for (decision, expected) in [
        (json!({"decision": "approve"}), response_to(1, true, None)),
        (json!({"decision": "reject", "message": "not today"}), response_to(1, false, Some("not today"))),
    ] {
        let task = start_paused(&hw, "asks").await;
        let call = task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_call").unwrap();
        assert_eq!((&call["kind"], &call["name"]), (&json!("hosted"), &json!("roll")), "{task}");
        assert_eq!(call["server_label"], "dice");
        let pending = &task["pending"][0];
        assert_eq!(pending["kind"], "approval");
        let listed = hw.get("/v1/approvals?status=pending").await.json();
        let row = &listed["data"][0];
        assert_eq!((&row["name"], &row["server_label"]), (&json!("roll"), &json!("dice")), "{listed}");
        assert_eq!((&row["arguments"], &row["editable"]), (&json!({"n": 6}), &json!(false)));
        let (status, problem) = decide(&hw, pending, json!({"decision": "edit", "arguments": {"n": 7}})).await;
        assert_eq!((status, &problem["code"]), (422, &json!("invalid_arguments")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("cannot be edited"), "{problem}");
        restart(&mut hw);
        let (status, decided) = decide(&hw, pending, decision.clone()).await;
        assert_eq!(status, 200, "{decided}");
        let other = if decision["decision"] == "approve" { "reject" } else { "approve" };
        assert_eq!(decide(&hw, pending, json!({"decision": other})).await.0, 409, "it is decided once");
        let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        assert_eq!(told(&upstream), [reasoning(), question(1), expected]);
        // The next run of the thread has them, too; a provider of another kind has neither.
        let body = |agent: &str| json!({"model": agent, "input": "and?", "thread_id": task["thread_id"]});
        let next = hw.create_task(body("asks")).await;
        hw.wait_ended(next["task_id"].as_str().unwrap()).await;
        assert_eq!(told(&upstream)[..2], [reasoning(), question(1)]);
        let next = hw.create_task(body("elsewhere")).await;
        hw.wait_ended(next["task_id"].as_str().unwrap()).await;
        let text = upstream.last_request_text(ProviderDialect::Chat);
        assert!(!text.contains("roll") && !text.contains("Approved") && !text.contains("not today"), "{text}");
    }
}

#[tokio::test]
async fn responses_answers_questions_of_the_provider() {
    let (upstream, mut hw) = start().await;
    let asked = create_response(&hw, json!({"model": "asks", "input": "go"})).await;
    let output = asked["output"].as_array().unwrap();
    let request = output.iter().find(|item| item["type"] == "mcp_approval_request").unwrap();
    assert_eq!((&request["name"], &request["server_label"]), (&json!("roll"), &json!("dice")), "{asked}");
    assert_eq!(request["arguments"], "{\"n\":6}");
    restart(&mut hw);
    let item = json!({"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": true});
    let body = json!({"model": "asks", "previous_response_id": asked["id"], "input": [item]});
    let answered = create_response(&hw, body).await;
    assert_eq!(output_text(&answered), "Done.", "{answered}");
    let call = answered["output"].as_array().unwrap().iter().find(|item| item["type"] == "mcp_call").unwrap();
    assert_eq!((&call["approval_request_id"], &call["server_label"]), (&request["id"], &json!("dice")), "{call}");
    assert_eq!(told(&upstream), [reasoning(), question(1), response_to(1, true, None)]);

    // Three in one turn, answered in two requests.
    let asked = create_response(&hw, json!({"model": "thrice", "input": "go"})).await;
    let requests: Vec<&Value> = asked["output"].as_array().unwrap().iter().collect();
    assert_eq!(requests.len(), 3, "{asked}");
    let item = |index: usize, approve: bool| json!({"type": "mcp_approval_response", "approval_request_id": requests[index]["id"], "approve": approve});
    let body = json!({"model": "thrice", "previous_response_id": asked["id"], "input": [item(1, false)]});
    let rest = create_response(&hw, body).await;
    assert_eq!(rest["output"].as_array().unwrap().len(), 2, "{rest}");
    restart(&mut hw);
    let input = json!([item(0, true), item(2, true)]);
    let body = json!({"model": "thrice", "previous_response_id": rest["id"], "input": input});
    assert_eq!(output_text(&create_response(&hw, body).await), "Done.");
    let responses = [
        response_to(1, true, None),
        response_to(2, false, Some("The call was not approved.")),
        response_to(3, true, None),
    ];
    assert_eq!(told(&upstream), [&[question(1), question(2), question(3)][..], &responses[..]].concat());
}

#[tokio::test]
async fn blocks_answer_a_question_of_the_provider() {
    let (upstream, mut hw) = start().await;
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&json!({"type": "chat", "session_id": "s1", "content": "go", "agent": "asks"})).await;
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["delta"]["action_requests"].is_null()) {
        frames.push(socket.next_event().await);
    }
    let asked = &frames.last().unwrap()["delta"]["action_requests"][0];
    assert_eq!((&asked["name"], &asked["server_label"]), (&json!("roll"), &json!("dice")), "{asked}");
    assert_eq!(asked["editable"], false);
    let start = frames.iter().find(|frame| frame["content_block"]["type"] == "approval_request").unwrap();
    let decide = |decision: Value| {
        let key = &start["content_block"]["approval_key"];
        json!({"type": "approval_response", "session_id": "s1", "approval_key": key, "decisions": [decision]})
    };
    restart(&mut hw);
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&decide(json!({"type": "edit", "args": {"n": 7}}))).await;
    let error = socket.read_until("error").await.pop().unwrap();
    assert_eq!(error["code"], "invalid_arguments", "{error}");
    socket.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    socket.send_json(&decide(json!({"type": "approve"}))).await;
    let frames = socket.read_until("message_stop").await;
    let blocks: Vec<&Value> = frames.iter().map(|frame| &frame["content_block"]).collect();
    let results: Vec<_> = blocks.iter().filter(|block| block["type"] == "tool_result").collect();
    assert_eq!((&results[0]["content"], &results[0]["status"]), (&json!("Approved."), &json!("success")));
    assert_eq!(results[1]["content"], "4", "what the provider ran");
    assert_eq!(told(&upstream), [reasoning(), question(1), response_to(1, true, None)]);
}

#[tokio::test]
async fn an_agent_run_shows_the_question_and_the_native_protocol_answers_it() {
    let (upstream, mut hw) = start().await;
    let body = json!({"message": "go", "threadId": "t1", "agent": "asks"});
    assert_eq!(hw.post("/api/v1/agent/runs", body).await.status, 202);
    let mut stream = hw.open_stream("/api/v1/agent/runs/t1/events").await;
    let frames = parse_frames(stream.read_until("\"expires_at\"").await);
    let shown = frames.iter().find(|frame| frame.event == "TOOL_CALL_RESULT").unwrap();
    let hints = &shown.data["toolAgentOutput"]["ui_hints"];
    assert_eq!(hints["approval"]["action_requests"][0]["server_label"], "dice", "{hints}");
    restart(&mut hw);
    let listed = hw.get("/v1/approvals?status=pending").await.json();
    let (status, decided) = decide(&hw, &listed["data"][0], json!({"decision": "approve"})).await;
    assert_eq!(status, 200, "{decided}");
    let mut stream = hw.open_stream("/api/v1/agent/runs/t1/events").await;
    stream.read_until("\"RUN_FINISHED\"").await;
    assert_eq!(told(&upstream)[2], response_to(1, true, None));
}

/// Messages has no place for questions: the request stays open until somebody has answered elsewhere.
#[tokio::test]
async fn a_messages_request_waits_for_the_answer_that_somebody_gives_elsewhere() {
    let (upstream, hw) = start().await;
    let body = json!({"model": "asks", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]});
    let reject = async {
        hw.wait_until("somebody is asked", async || {
            hw.get("/v1/approvals?status=pending").await.json()["data"][0].is_object()
        })
        .await;
        let listed = hw.get("/v1/approvals?status=pending").await.json();
        decide(&hw, &listed["data"][0], json!({"decision": "reject", "message": "no"})).await
    };
    let (message, (status, _)) = tokio::join!(hw.post("/v1/messages", body), reject);
    assert_eq!(status, 200);
    let content = message.json()["content"].clone();
    let used = content.as_array().unwrap().iter().find(|block| block["type"] == "mcp_tool_use").unwrap();
    assert_eq!((&used["name"], &used["server_name"]), (&json!("roll"), &json!("dice")), "{content}");
    assert_eq!(told(&upstream)[2], response_to(1, false, Some("no")));
}

#[tokio::test]
async fn always_answers_later_questions_about_the_same_tool() {
    let (upstream, hw) = start().await;
    let task = start_paused(&hw, "loops").await;
    let (status, decided) = decide(&hw, &task["pending"][0], json!({"decision": "approve", "always": true})).await;
    assert_eq!(status, 200, "{decided}");
    let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    let yes = |number| [question(number), response_to(number, true, None)];
    assert_eq!(told(&upstream), [yes(1), yes(2), yes(3)].concat());
    assert_eq!(hw.get("/v1/approvals").await.json()["data"].as_array().unwrap().len(), 1, "one question was asked");
}

#[tokio::test]
async fn run_items_have_the_question_and_its_answer() {
    let (_upstream, hw) = start().await;
    let task = start_paused(&hw, "asks").await;
    decide(&hw, &task["pending"][0], json!({"decision": "approve"})).await;
    let id = task["task_id"].as_str().unwrap();
    hw.wait_ended(id).await;
    let frames = hw.frames(&format!("/v1/tasks/{id}/events?format=run-items"), None).await;
    let named: Vec<(&str, &str)> = frames
        .iter()
        .filter(|frame| frame.event == "run_item_stream_event")
        .map(|frame| (frame.data["name"].as_str().unwrap(), frame.data["item"]["type"].as_str().unwrap()))
        .collect();
    let expected = [
        ("reasoning_item_created", "reasoning_item"),
        ("mcp_approval_requested", "mcp_approval_request_item"),
        ("mcp_approval_response", "mcp_approval_response_item"),
        ("tool_called", "tool_call_item"),
        ("message_output_created", "message_output_item"),
    ];
    assert_eq!(named, expected);
}

/// What the provider gets back after the client has operated the computer.
fn screenshot_to(upstream: &RecordingUpstream, agent: &str, checks: &Value) {
    let told = told(upstream);
    assert_eq!(told[0], computer_call(agent), "in the shape that came");
    assert_eq!((&told[1]["type"], &told[1]["call_id"]), (&json!("computer_call_output"), &json!("call_up")));
    assert_eq!(&told[1]["acknowledged_safety_checks"], checks);
    let url = told[1]["output"]["image_url"].as_str().unwrap();
    assert!(url.starts_with("data:image/png;base64,iVBORw0KGgo"), "the model is shown the picture: {url}");
}

#[tokio::test]
async fn a_client_of_responses_operates_the_computer_in_both_shapes() {
    let (upstream, mut hw) = start().await;
    for agent in ["screen", "screens"] {
        let asked = create_response(&hw, json!({"model": agent, "input": "go"})).await;
        let call = &asked["output"][0];
        let sent = computer_call(agent);
        for member in ["type", "action", "actions", "pending_safety_checks"] {
            assert_eq!(call[member], sent[member], "{member} of {call}");
        }
        restart(&mut hw);
        let output = json!({"type": "computer_call_output", "call_id": call["call_id"],
            "acknowledged_safety_checks": call["pending_safety_checks"],
            "output": {"type": "computer_screenshot", "image_url": PIXEL}});
        let body = json!({"model": agent, "previous_response_id": asked["id"], "input": [output]});
        let answered = create_response(&hw, body).await;
        assert_eq!(output_text(&answered), "Done.", "{answered}");
        screenshot_to(&upstream, agent, &call["pending_safety_checks"]);
        let path = format!("/v1/responses/{}/input_items?order=asc", answered["id"].as_str().unwrap());
        let items = hw.get(&path).await.json();
        let shown = items["data"].as_array().unwrap().iter().find(|item| item["type"] == "computer_call_output");
        let shown = shown.unwrap_or_else(|| panic!("{items}"));
        assert_eq!(shown["acknowledged_safety_checks"], call["pending_safety_checks"]);
    }
}

#[tokio::test]
async fn a_native_client_operates_the_computer() {
    let (upstream, mut hw) = start().await;
    for agent in ["screen", "screens"] {
        let task = start_paused(&hw, agent).await;
        let pending = &task["pending"][0];
        assert_eq!(pending["kind"], "client_tool");
        let call = task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_call").unwrap();
        assert_eq!((&call["name"], &call["kind"]), (&json!("computer"), &json!("client")));
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        let (key, sent) = (if agent == "screen" { "action" } else { "actions" }, computer_call(agent));
        assert_eq!(arguments[key], sent[key]);
        restart(&mut hw);
        let path = format!("/v1/tasks/{}/tool_results", task["task_id"].as_str().unwrap());
        let picture = json!([{"type": "image_url", "image_url": {"url": PIXEL}}]);
        let result = json!({"call_id": pending["call_id"], "content": picture});
        let mut wrong = result.clone();
        wrong["acknowledged_safety_checks"] = json!(["sc_1"]);
        assert_eq!(hw.post(&path, json!([wrong])).await.status, 422);
        let reply = hw.post(&path, json!([result])).await;
        assert_eq!(reply.status, 202, "{}", reply.text);
        let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        // Nobody has acknowledged the check.
        screenshot_to(&upstream, agent, &json!([]));
        let result = ended["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_result").unwrap();
        let url = result["block_list"][0]["image_url"]["url"].as_str().unwrap();
        assert!(url.starts_with("/v1/blobs/"), "people are shown the picture: {result}");
    }
}

const SCENARIOS: &str = r#"
[[scenario]]
match = 'question'
[[scenario.turn]]
steps = [{ approval = "roll", server = "dice", arguments = '{"n":6}' }]
[[scenario.turn]]
when = { status = "rejected" }
steps = [{ text = "Not rolled." }]
[[scenario.turn]]
steps = [{ text = "Rolled." }]

[[scenario]]
[[scenario.turn]]
steps = [{ computer = '{"action":{"type":"screenshot"}}' }]
[[scenario.turn]]
steps = [{ text = "I see it." }]
"#;

#[tokio::test]
async fn a_scenario_asks_for_approval_and_operates_a_computer() {
    let hw = Server::with_scenarios(SCENARIOS);
    for (decision, text) in [("approve", "Rolled."), ("reject", "Not rolled.")] {
        let task = hw.create_task(json!({"model": "demo", "input": "question"})).await;
        let task = wait_paused(&hw, &task).await;
        assert_eq!(decide(&hw, &task["pending"][0], json!({"decision": decision})).await.0, 200);
        let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
        assert!(ended["output"].to_string().contains(&format!("\"{text}\"")), "{ended}");
    }
    let asked = create_response(&hw, json!({"model": "demo", "input": "look"})).await;
    let call = &asked["output"][0];
    assert_eq!((&call["type"], &call["action"]), (&json!("computer_call"), &json!({"type": "screenshot"})), "{asked}");
    let output = json!({"type": "computer_call_output", "call_id": call["call_id"],
        "output": {"type": "computer_screenshot", "image_url": PIXEL}});
    let body = json!({"model": "demo", "previous_response_id": asked["id"], "input": [output]});
    assert_eq!(output_text(&create_response(&hw, body).await), "I see it.");
}
