//! What a tool may return, and tools that call one of several agents.

use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, full_response};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use serde_json::{Value, json};

/// One pixel.
const PNG: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

/// The output of the requirement's example, with a picture that is one.
fn example_output() -> Value {
    let text = json!({"type": "text", "text": "{\"temperature\":\"15C\",\"condition\":\"Sunny\"}", "id": 1});
    let image = json!({"type": "image_url", "image_url": {"url": PNG}, "id": 1});
    json!({"message_content": [text, image], "block_list": [text, image]})
}

async fn run(hw: &Server, body: Value) -> Value {
    let mut body = body;
    body["wait"] = json!(true);
    let reply = hw.post("/v1/tasks", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

fn result_of(task: &Value) -> &Value {
    task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_result").expect("a result")
}

async fn upstream() -> RecordingUpstream {
    RecordingUpstream::start(|dialect, body| match dialect.has_results(body) {
        true => dialect.full_answer("Sunny.[^1]"),
        false => dialect.full_call("work", "{}"),
    })
    .await
}

#[tokio::test]
async fn the_example_of_the_requirement_is_a_result_of_every_kind_of_tool() {
    let site = Loopback::start(|_| {
        vec![full_response("200 OK", "content-type: application/json\r\n", &example_output().to_string())]
    })
    .await;
    let command = "kind = \"command\"\ncommand = [\"cat\", \"output.json\"]\nenv_pass = [\"PATH\"]".to_owned();
    let http = format!("kind = \"http\"\nmethod = \"POST\"\nurl = \"{}\"", site.url("/work"));
    for tool in [command, http] {
        let upstream = upstream().await;
        let hw = Server::with_config(&format!("{}\n[tools.work]\n{tool}\n", upstream.agents("tools = [\"work\"]")), "");
        std::fs::write(hw.path("output.json"), example_output().to_string()).unwrap();
        let task = run(&hw, json!({"model": "responses", "input": "go"})).await;
        let result = result_of(&task);
        assert_eq!(result["status"], "completed", "{tool}: {result}");
        let blocks = result["block_list"].as_array().unwrap();
        assert_eq!(blocks[0], example_output()["block_list"][0], "{tool}");
        assert_eq!((&blocks[1]["type"], &blocks[1]["id"]), (&json!("image"), &json!(1)), "{tool}");
        assert!(blocks[1]["image_url"]["url"].as_str().unwrap().starts_with("/v1/blobs/"), "{tool}: {result}");
        let asked = upstream.last_request(ProviderDialect::Responses).to_string();
        assert!(
            asked.contains("15C") && asked.contains("<referencable-item>") && asked.contains("iVBORw0KGgo"),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn an_unknown_block_is_shown_as_its_json_and_costs_nothing_else() {
    let upstream = upstream().await;
    let config = upstream.agents("tools = [\"work\"]")
        + "\n[tools.work]\nkind = \"command\"\ncommand = [\"cat\", \"output.json\"]\nenv_pass = [\"PATH\"]\n";
    let hw = Server::with_config(&config, "");
    let video = json!({"type": "video", "url": "https://example.org/v"});
    let output = json!({"message_content": "for the model", "summary": "short",
        "block_list": [{"type": "text", "text": "before"}, video, {"type": "text", "text": "after"}]});
    std::fs::write(hw.path("output.json"), output.to_string()).unwrap();
    let task = run(&hw, json!({"model": "responses", "input": "go"})).await;
    let result = result_of(&task);
    assert_eq!((&result["status"], &result["summary"]), (&json!("completed"), &json!("short")), "{result}");
    let texts: Vec<&str> =
        result["block_list"].as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["before", &video.to_string(), "after"]);
    let asked = upstream.last_request(ProviderDialect::Responses).to_string();
    assert!(asked.contains("for the model") && !asked.contains("video"), "{asked}");
}

const AGENTS: &str = r#"
[agents.root]
model = "mine/root"
tools = ["ask"]
[agents.anna]
model = "mine/anna"
description = "Knows the weather."
[agents.bert]
model = "mine/bert"
[tools.ask]
kind = "agent"
agent = ["anna", "bert"]
[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;
const SCENARIOS: &str = r#"
[[scenario]]
model = ["anna", "bert"]
[[scenario.turn]]
steps = [{ text = "I am it." }]

[[scenario]]
match = 'ask (?<who>\w+)'
[[scenario.turn]]
steps = [{ call = "ask", arguments = '{"name":"{who}","prompt":"Who are you?"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]
"#;

#[tokio::test]
async fn the_argument_name_picks_one_of_several_agents() {
    let hw = Server::with_config(AGENTS, SCENARIOS);
    for name in ["anna", "bert"] {
        let task = run(&hw, json!({"model": "root", "input": format!("ask {name}")})).await;
        let result = result_of(&task);
        assert_eq!(result["status"], "completed", "{result}");
        let message = result["block_list"].as_array().unwrap().iter().find(|block| block["type"] == "message").unwrap();
        assert_eq!(
            (&message["agent"], &message["block_list"][0]["text"]),
            (&json!(name), &json!("I am it.")),
            "{task}"
        );
    }
    let task = run(&hw, json!({"model": "root", "input": "ask carl"})).await;
    let result = result_of(&task);
    assert_eq!((&task["status"], &result["status"]), (&json!("completed"), &json!("failed")), "{task}");
    assert_eq!(result["error"]["code"], "unknown_agent");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("`carl`") && message.contains("anna, bert"), "{message}");
}
