//! Questions of tools to people: every protocol that can answer does so after a `kill -9`, and the answer counts once.

use crate::blocks::socket::Socket;
use crate::harness::{Reply, Server, parse_frames};
use crate::responses::{create_response, output_text, parse_error};
use crate::terminal::Terminal;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[agents.helper]
model = "mine/any"
tools = ["ask_user", "book", "nag", "brief"]

[tools.ask_user]
kind = "builtin"

[tools.book]
kind = "command"
command = ["sh", "book.sh"]
env_pass = ["PATH"]

[tools.nag]
kind = "command"
command = ["sh", "-c", "echo '{\"type\":\"question\",\"message\":\"Still there?\"}'"]
env_pass = ["PATH"]

[tools.brief]
kind = "command"
command = ["sh", "book.sh"]
env_pass = ["PATH"]
approval_timeout_seconds = 1

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

/// Every run of the program is a line: what it read.
const BOOK: &str = r#"
read -r arguments
read -r answer
echo "$arguments $answer" >> runs
if [ -z "$answer" ]; then
  echo 'One moment.'
  echo '{"type":"question","message":"Which seat?","state":"held","schema":{"type":"object","properties":{"seat":{"type":"string","enum":["12A","12B"]}},"required":["seat"]}}'
else
  echo "$answer"
fi
"#;

const SCENARIOS: &str = r#"
[[scenario]]
match = "ask"
[[scenario.turn]]
steps = [{ call = "ask_user", arguments = '{"message":"Which color?","schema":{"type":"object","properties":{"color":{"type":"string","enum":["red","blue"]}},"required":["color"]}}' }]
[[scenario.turn]]
steps = [{ text = ["Thank you."] }]

[[scenario]]
match = "plain"
[[scenario.turn]]
steps = [{ call = "ask_user", arguments = '{"message":"Who are you?"}' }]
[[scenario.turn]]
steps = [{ text = ["Thank you."] }]

[[scenario]]
match = "odd"
[[scenario.turn]]
steps = [{ call = "ask_user", arguments = '{"message":"?","schema":{"type":"string"}}' }]
[[scenario.turn]]
steps = [{ text = ["Sorry."] }]

[[scenario]]
match = "book"
[[scenario.turn]]
steps = [{ call = "book", arguments = '{"flight":"VN1"}' }]
[[scenario.turn]]
steps = [{ text = ["Booked."] }]

[[scenario]]
match = "brief"
[[scenario.turn]]
steps = [{ call = "brief", arguments = '{}' }]
[[scenario.turn]]
steps = [{ text = ["Booked."] }]

[[scenario]]
match = "nag"
[[scenario.turn]]
steps = [{ call = "nag", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Enough."] }]
"#;

fn server() -> Server {
    let hw = Server::with_config(CONFIG, SCENARIOS);
    std::fs::write(hw.path("book.sh"), BOOK).unwrap();
    hw
}

fn restart(hw: &mut Server) {
    hw.kill9();
    hw.restart();
}

async fn start_paused(hw: &Server, input: &str) -> Value {
    let reply = hw.post("/v1/tasks", json!({"model": "helper", "input": input, "wait": true})).await;
    let task = reply.json();
    assert_eq!(task["status"], "paused", "{task}");
    task
}

async fn answer(hw: &Server, pending: &Value, decision: Value) -> Reply {
    let (task, key) = (pending["task_id"].as_str().unwrap(), pending["key"].as_str().unwrap());
    hw.post(&format!("/v1/tasks/{task}/approvals/{key}"), decision).await
}

async fn open_questions(hw: &Server) -> Vec<Value> {
    hw.get("/v1/approvals?status=pending").await.json()["data"].as_array().unwrap().clone()
}

async fn result_of_ended(hw: &Server, task: &Value) -> Value {
    let ended = hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    let mut results = ended["output"].as_array().unwrap().iter().filter(|item| item["type"] == "tool_result");
    results.next().unwrap().clone()
}

fn text(result: &Value) -> &str {
    result["block_list"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

fn runs(hw: &Server) -> Vec<String> {
    let text = std::fs::read_to_string(hw.path("runs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_question_is_answered_natively_after_a_kill_with_an_answer_that_fits() {
    let mut hw = server();
    let task = start_paused(&hw, "ask").await;
    let pending = &task["pending"][0];
    assert_eq!(pending["kind"], "question", "{task}");
    restart(&mut hw);
    let listed = open_questions(&hw).await;
    assert_eq!((listed.len(), &listed[0]["key"], &listed[0]["name"]), (1, &pending["key"], &json!("ask_user")));
    assert_eq!(listed[0]["question"]["message"], "Which color?");
    assert_eq!(listed[0]["question"]["schema"]["required"], json!(["color"]));
    for unfit in [
        json!({"decision": "approve"}),
        json!({"decision": "approve", "arguments": {"color": "green"}}),
        json!({"decision": "approve", "arguments": {"color": "red"}, "always": true}),
        json!({"decision": "edit", "arguments": {"color": "red"}}),
    ] {
        let refused = answer(&hw, pending, unfit.clone()).await;
        assert_eq!(refused.problem(), (422, "invalid_arguments".to_owned()), "{unfit}");
    }
    assert_eq!(answer(&hw, pending, json!({"decision": "reject", "arguments": {}})).await.status, 422);
    assert_eq!(open_questions(&hw).await.len(), 1, "it is still open");

    let approve = json!({"decision": "approve", "arguments": {"color": "blue"}});
    let decided = answer(&hw, pending, approve.clone()).await;
    assert_eq!(decided.status, 200, "{}", decided.text);
    assert_eq!(decided.json()["decision"]["args"], json!({"color": "blue"}));
    assert_eq!(answer(&hw, pending, approve).await.status, 200, "the same answer again");
    let other = json!({"decision": "approve", "arguments": {"color": "red"}});
    assert_eq!(answer(&hw, pending, other).await.problem(), (409, "already_decided".to_owned()));
    let result = result_of_ended(&hw, &task).await;
    assert_eq!((text(&result), &result["artifact"]), (r#"{"color":"blue"}"#, &json!({"color": "blue"})));
    let id = task["task_id"].as_str().unwrap();
    let frames = hw.frames(&format!("/v1/tasks/{id}/events"), None).await;
    let attempts = frames.iter().filter(|frame| frame.event == "task.tool.started").map(|frame| &frame.data["attempt"]);
    assert_eq!(attempts.collect::<Vec<_>>(), [&json!(1), &json!(1)], "the second call is the same attempt");
}

#[tokio::test]
async fn a_declined_question_of_ask_user_rejects_its_call() {
    let hw = server();
    let task = start_paused(&hw, "plain").await;
    let schema = &open_questions(&hw).await[0]["question"]["schema"];
    assert_eq!(schema["required"], json!(["answer"]), "without a schema the answer is a text");
    let declined = answer(&hw, &task["pending"][0], json!({"decision": "reject", "message": "rather not"})).await;
    assert_eq!(declined.json()["status"], "rejected", "{}", declined.text);
    let result = result_of_ended(&hw, &task).await;
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("rejected"), &json!("rejected")));
    assert_eq!(result["error"]["message"], "rather not");
    // The model asked for something that nobody can give.
    let reply = hw.post("/v1/tasks", json!({"model": "helper", "input": "odd", "wait": true})).await;
    let result = reply.json()["output"][1].clone();
    assert_eq!(result["error"]["code"], "invalid_question", "{result}");
}

#[tokio::test]
async fn a_program_that_asks_is_run_again_with_the_answer_after_a_kill() {
    let mut hw = server();
    let task = start_paused(&hw, "book").await;
    assert_eq!(runs(&hw), [r#"{"flight":"VN1"} "#]);
    restart(&mut hw);
    let reply = answer(&hw, &task["pending"][0], json!({"decision": "approve", "arguments": {"seat": "12A"}})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let line = r#"{"type":"answer","action":"accept","content":{"seat":"12A"},"state":"held"}"#;
    assert_eq!(text(&result_of_ended(&hw, &task).await), line);
    assert_eq!(runs(&hw), [r#"{"flight":"VN1"} "#.to_owned(), format!(r#"{{"flight":"VN1"}} {line}"#)]);

    // Declined and timed out: the program says what follows.
    let task = start_paused(&hw, "book").await;
    answer(&hw, &task["pending"][0], json!({"decision": "reject", "message": "no"})).await;
    let line = r#"{"type":"answer","action":"decline","message":"no","state":"held"}"#;
    assert_eq!(text(&result_of_ended(&hw, &task).await), line);
    let task = start_paused(&hw, "brief").await;
    assert_eq!(text(&result_of_ended(&hw, &task).await), r#"{"type":"answer","action":"cancel","state":"held"}"#);
    let late = answer(&hw, &task["pending"][0], json!({"decision": "approve", "arguments": {"seat": "12A"}})).await;
    assert_eq!(late.problem(), (409, "already_decided".to_owned()));
}

#[tokio::test]
async fn one_of_fifty_concurrent_answers_wins() {
    let hw = server();
    let task = start_paused(&hw, "plain").await;
    let say = async |n: usize| {
        let body = json!({"decision": "approve", "arguments": {"answer": format!("person {n}")}});
        answer(&hw, &task["pending"][0], body).await
    };
    let replies = futures_util::future::join_all((0..50).map(say)).await;
    let (won, lost): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert_eq!((won.len(), lost.len()), (1, 49));
    for reply in lost {
        assert_eq!(reply.problem(), (409, "already_decided".to_owned()));
        assert_eq!(reply.json()["approval"], won[0].json());
    }
    let result = result_of_ended(&hw, &task).await;
    assert_eq!(result["artifact"], won[0].json()["decision"]["args"]);
}

#[tokio::test]
async fn a_tool_that_asks_for_ever_gets_an_error() {
    let hw = server();
    let mut task = start_paused(&hw, "nag").await;
    for _ in 0..10 {
        let pending = task["pending"][0].clone();
        assert_eq!(answer(&hw, &pending, json!({"decision": "approve"})).await.status, 200);
        let path = format!("/v1/tasks/{}", task["task_id"].as_str().unwrap());
        hw.wait_until("it asks again, or ends", async || {
            let now = hw.get(&path).await.json();
            now["status"] == "completed" || now["pending"][0]["key"].as_str().is_some_and(|key| pending["key"] != key)
        })
        .await;
        task = hw.get(&path).await.json();
    }
    let result = result_of_ended(&hw, &task).await;
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("failed"), &json!("too_many_questions")));
}

#[tokio::test]
async fn responses_answers_a_question_after_a_kill() {
    let mut hw = server();
    for as_reason in [false, true] {
        let asked = create_response(&hw, json!({"model": "helper", "input": "book"})).await;
        let output = asked["output"].as_array().unwrap();
        let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, ["mcp_call", "mcp_approval_request"], "{asked}");
        let request = &output[1];
        assert_eq!((&output[0]["status"], &request["name"]), (&json!("incomplete"), &json!("book")));
        assert_eq!(request["question"]["message"], "Which seat?");
        let shown: Value = serde_json::from_str(request["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(shown, request["question"]);
        restart(&mut hw);
        let body = |seat: &str| {
            let mut item =
                json!({"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": true});
            let content = json!({"seat": seat});
            if as_reason {
                item["reason"] = content.to_string().into();
            } else {
                item["arguments"] = content;
            }
            json!({"model": "helper", "previous_response_id": asked["id"], "input": [item]})
        };
        let refused = hw.post("/v1/responses", body("99Z")).await;
        let (status, code, _) = parse_error(&refused);
        assert_eq!((status, code.as_str()), (400, "invalid_arguments"), "{}", refused.text);
        let answered = create_response(&hw, body("12B")).await;
        assert_eq!(output_text(&answered), "Booked.", "{answered}");
        let call = &answered["output"][0];
        assert_eq!((&call["type"], &call["status"]), (&json!("mcp_call"), &json!("completed")), "{answered}");
        assert_eq!(call["approval_request_id"], Value::Null, "nobody had to approve the call");
        assert!(call["output"].as_str().unwrap().contains(r#"{"seat":"12B"}"#), "{call}");
        let again = create_response(&hw, body("12B")).await;
        assert_eq!(again["id"], answered["id"], "the same answer is the same response");
        assert_eq!(hw.post("/v1/responses", body("12A")).await.status, 409);
    }
    assert_eq!(runs(&hw).len(), 4);
}

#[tokio::test]
async fn blocks_answer_a_question_after_a_kill() {
    let mut hw = server();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&json!({"type": "chat", "session_id": "s1", "content": "book", "agent": "helper"})).await;
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["delta"]["question"].is_null()) {
        frames.push(socket.next_event().await);
    }
    assert_eq!(frames.last().unwrap()["delta"]["question"]["message"], "Which seat?");
    let start = frames.iter().find(|frame| frame["content_block"]["type"] == "approval_request").unwrap();
    let decide = |args: Value| {
        let key = &start["content_block"]["approval_key"];
        let decisions = json!([{"type": "approve", "args": args}]);
        json!({"type": "approval_response", "session_id": "s1", "approval_key": key, "decisions": decisions})
    };
    restart(&mut hw);
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&decide(json!({"seat": 7}))).await;
    let error = socket.read_until("error").await.pop().unwrap();
    assert_eq!(error["code"], "invalid_arguments", "{error}");
    socket.send_json(&json!({"type": "resume", "session_id": "s1"})).await;
    socket.send_json(&decide(json!({"seat": "12A"}))).await;
    let frames = socket.read_until("message_stop").await;
    let result = frames.iter().map(|frame| &frame["content_block"]).find(|block| block["type"] == "tool_result");
    assert!(result.unwrap()["content"].as_str().unwrap().contains(r#"{"seat":"12A"}"#), "{result:?}");
    assert_eq!(runs(&hw).len(), 2);
}

/// The data of a stream's frames.
fn data(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let lines = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn ag_ui_answers_a_question_after_a_kill() {
    let mut hw = server();
    let run = |run_id: &str, resume: Value| {
        let message = json!({"id": "m-1", "role": "user", "content": "book"});
        json!({"threadId": "t-1", "runId": run_id, "protocolVersion": "1.0", "messages": [message], "resume": resume})
    };
    let asked = data(&hw.post("/agui/helper", run("r-1", Value::Null)).await);
    let interrupt = &asked.last().unwrap()["outcome"]["interrupts"][0];
    assert_eq!((&interrupt["reason"], &interrupt["message"]), (&json!("input_required"), &json!("Which seat?")));
    restart(&mut hw);
    let seat = |seat: &str| json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": {"seat": seat}}]);
    assert_eq!(hw.post("/agui/helper", run("r-2", seat("99Z"))).await.status, 400);
    let answered = data(&hw.post("/agui/helper", run("r-2", seat("12B"))).await);
    let result = answered.iter().find(|event| event["type"] == "TOOL_CALL_RESULT").unwrap();
    assert!(result["content"].as_str().unwrap().contains(r#"{"seat":"12B"}"#), "{result}");
    assert_eq!(answered.last().unwrap()["outcome"]["type"], "success");
    assert_eq!(hw.post("/agui/helper", run("r-3", seat("12A"))).await.status, 409);
    assert_eq!(runs(&hw).len(), 2);
}

#[tokio::test]
async fn a_chat_of_the_ai_sdk_answers_a_question_after_a_kill() {
    let mut hw = server();
    let said = json!({"id": "m-1", "role": "user", "parts": [{"type": "text", "text": "book"}]});
    let asked = data(&hw.post("/api/chat", json!({"id": "c-1", "messages": [said]})).await);
    let request = asked.iter().find(|chunk| chunk["type"] == "tool-approval-request").unwrap();
    assert_eq!(request["approvalDescriptor"]["message"], "Which seat?", "{request}");
    restart(&mut hw);
    let answered_with = |seat: &str, as_reason: bool| {
        let mut approval = json!({"id": request["approvalId"], "approved": true});
        let mut body = json!({"id": "c-1"});
        if as_reason {
            approval["reason"] = json!({ "seat": seat }).to_string().into();
        } else {
            body["answers"] = json!({ request["approvalId"].as_str().unwrap(): { "seat": seat } });
        }
        let call = json!({"type": "dynamic-tool", "toolName": "book", "toolCallId": request["toolCallId"],
            "state": "approval-responded", "input": {"flight": "VN1"}, "approval": approval});
        body["messages"] = json!([said, {"id": asked[0]["messageId"], "role": "assistant", "parts": [call]}]);
        body
    };
    for as_reason in [false, true] {
        assert_eq!(hw.post("/api/chat", answered_with("99Z", as_reason)).await.status, 400);
    }
    let answered = data(&hw.post("/api/chat", answered_with("12B", true)).await);
    let output = answered.iter().find(|chunk| chunk["type"] == "tool-output-available").unwrap();
    assert!(output["output"].to_string().contains("12B"), "{output}");
    let again = data(&hw.post("/api/chat", answered_with("12B", false)).await);
    assert_eq!(again, answered, "the same answer is the same segment");
    assert_eq!(hw.post("/api/chat", answered_with("12A", false)).await.status, 409);
    assert_eq!(runs(&hw).len(), 2);
}

#[tokio::test]
async fn an_agent_run_and_run_items_show_the_question_and_the_native_protocol_answers_it() {
    let mut hw = server();
    let body = json!({"message": "book", "threadId": "t1", "agent": "helper"});
    assert_eq!(hw.post("/api/v1/agent/runs", body).await.status, 202);
    let mut stream = hw.open_stream("/api/v1/agent/runs/t1/events").await;
    let frames = parse_frames(stream.read_until("\"expires_at\"").await);
    let shown = frames.iter().find(|frame| frame.event == "TOOL_CALL_RESULT").unwrap();
    let output = &shown.data["toolAgentOutput"];
    assert_eq!(output["ui_hints"]["question"]["message"], "Which seat?", "{output}");
    restart(&mut hw);
    let listed = open_questions(&hw).await;
    let items = format!("/v1/tasks/{}/events?format=run-items", listed[0]["run_id"].as_str().unwrap());
    let mut stream = hw.open_stream(&items).await;
    let frames = parse_frames(stream.read_until("run_paused").await);
    let reply = answer(&hw, &listed[0], json!({"decision": "approve", "arguments": {"seat": "12A"}})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    drop(frames);
    let mut events = hw.open_stream("/api/v1/agent/runs/t1/events").await;
    events.read_until("\"RUN_FINISHED\"").await;
    let frames = hw.frames(&items, None).await;
    let paused = frames.iter().find(|frame| frame.event == "run_paused").unwrap();
    assert_eq!(paused.data["reason"], "question", "{}", paused.data);
    assert_eq!(paused.data["interruptions"][0]["question"]["message"], "Which seat?");
    assert_eq!(runs(&hw).len(), 2);
}

/// Messages and Chat have no place for questions: the request stays open until somebody has answered elsewhere.
#[tokio::test]
async fn requests_of_other_protocols_wait_for_the_answer_that_somebody_gives_elsewhere() {
    let hw = server();
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let body = json!({"model": "helper", "max_tokens": 100, "messages": [{"role": "user", "content": "ask"}]});
        let tell = async {
            hw.wait_until("somebody is asked", async || !open_questions(&hw).await.is_empty()).await;
            let open = open_questions(&hw).await;
            answer(&hw, &open[0], json!({"decision": "approve", "arguments": {"color": "red"}})).await
        };
        let (reply, told) = tokio::join!(hw.post(path, body), tell);
        assert_eq!((reply.status, told.status), (200, 200), "{}", reply.text);
        assert!(reply.text.contains("Thank you."), "{}", reply.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_in_the_terminal_asks_and_sends_the_answer() {
    let hw = server();
    let mut terminal = Terminal::run(&hw.path("."), &["chat", "--url", &hw.url("")]);
    terminal.wait_for("> ");
    terminal.type_keys("plain\n");
    terminal.wait_for("Who are you? ");
    terminal.type_keys("Ann \"the\" first\n");
    terminal.wait_for("Thank you.");
    terminal.wait_for("> ");
    terminal.type_keys("ask\n");
    terminal.wait_for("write one of red, blue; an empty line declines");
    terminal.wait_for("Which color? ");
    terminal.type_keys("green\n");
    terminal.wait_for("422");
    terminal.wait_for("Which color? ");
    terminal.type_keys("red\n");
    terminal.wait_for("Thank you.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_exit(), Some(0));
    let decided = hw.get("/v1/approvals").await.json();
    let answers: Vec<&Value> = decided["data"].as_array().unwrap().iter().map(|row| &row["decision"]["args"]).collect();
    assert_eq!(answers, [&json!({"color": "red"}), &json!({"answer": "Ann \"the\" first"})]);
}
