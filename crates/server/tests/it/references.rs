//! References: what the model is told about them, where there are none, and that an agent cites only what it was shown.

use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use serde_json::{Value, json};

const MARKER: &str = "<referencable-item>";
/// A part of the default text.
const DEFAULT: &str = "cite it directly after the statement as [^ID]";
const TOOL: &str = "\n[tools.work]\nkind = \"command\"\ncommand = [\"echo\", \"42\"]\nenv_pass = [\"PATH\"]\n";

/// Calls `work`, and repeats the citation of its result.
async fn citing_upstream() -> RecordingUpstream {
    RecordingUpstream::start(|dialect, body| match dialect.has_results(body) {
        true => dialect.full_answer("It is 42.[^1]"),
        false => dialect.full_call("work", "{}"),
    })
    .await
}

async fn run(hw: &Server, body: Value) -> Value {
    let mut body = body;
    body["wait"] = json!(true);
    let reply = hw.post("/v1/tasks", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// The result's first block, and the citations of the last message.
fn block_and_citations(task: &Value) -> (Value, Value) {
    let items = task["output"].as_array().unwrap();
    let result = items.iter().find(|item| item["type"] == "tool_result").expect("a result");
    let message = items.iter().rfind(|item| item["type"] == "message").expect("a message");
    (result["block_list"][0].clone(), message["block_list"][0]["annotations"].clone())
}

#[tokio::test]
async fn a_model_with_tools_is_told_how_to_cite_their_results() {
    let upstream = citing_upstream().await;
    let config = upstream.agents("tools = [\"work\"]\ninstructions = \"Own words.\"") + TOOL;
    let hw = Server::with_config(&config, "");
    for dialect in DIALECTS {
        let task = run(&hw, json!({"model": dialect.name(), "input": "go"})).await;
        for request in upstream.requests(dialect) {
            let told = dialect.instructions(&request);
            assert!(told.starts_with("Own words.\n\n") && told.contains(DEFAULT), "{}: {told}", dialect.name());
        }
        let results = dialect.results(&upstream.last_request(dialect));
        assert!(results.len() == 1 && results[0].contains(MARKER), "{results:?}");
        let (block, citations) = block_and_citations(&task);
        assert_eq!((&block["id"], &citations[0]["reference_id"]), (&json!(1), &json!(1)), "{task}");
    }
}

#[tokio::test]
async fn the_text_about_references_can_be_configured() {
    let upstream = citing_upstream().await;
    let keys = "tools = [\"work\"]\nreference_instructions = \"Sources as [^n], please.\"";
    let hw = Server::with_config(&(upstream.agents(keys) + TOOL), "");
    run(&hw, json!({"model": "responses", "input": "go"})).await;
    let dialect = ProviderDialect::Responses;
    assert_eq!(dialect.instructions(&upstream.last_request(dialect)), "Sources as [^n], please.");
}

#[tokio::test]
async fn an_agent_without_tools_is_told_nothing_about_references() {
    let upstream = RecordingUpstream::start(|dialect, _| dialect.full_answer("Hello.[^1]")).await;
    let hw = Server::with_config(&upstream.agents("instructions = \"Own words.\""), "");
    run(&hw, json!({"model": "responses", "input": "go"})).await;
    let dialect = ProviderDialect::Responses;
    assert_eq!(dialect.instructions(&upstream.last_request(dialect)), "Own words.");
}

#[tokio::test]
async fn an_agent_with_references_off_gets_plain_results_also_after_a_restart() {
    let upstream = citing_upstream().await;
    let mut hw = Server::with_config(&(upstream.agents("tools = [\"work\"]\nreferences = false") + TOOL), "");
    for dialect in DIALECTS {
        let task = run(&hw, json!({"model": dialect.name(), "input": "go"})).await;
        assert_eq!(block_and_citations(&task), (json!({"type": "text", "text": "42"}), Value::Null), "{task}");
        hw.kill9();
        hw.restart();
        run(&hw, json!({"model": dialect.name(), "input": "and now?", "thread_id": task["thread_id"]})).await;
        for request in upstream.requests(dialect) {
            assert_eq!(dialect.instructions(&request), "", "{}", dialect.name());
            assert!(!request.to_string().contains(MARKER), "{request}");
        }
        let results = dialect.results(&upstream.last_request(dialect));
        assert!(results.len() == 1 && results[0].contains("42"), "{results:?}");
    }
}

#[tokio::test]
async fn results_of_clients_and_of_bare_models_are_plain() {
    let upstream = citing_upstream().await;
    let hw = Server::with_config(&upstream.agents(""), "");
    // A bare model, and an agent, each with a tool of the client's.
    for model in ["responses/m", "responses"] {
        let tools = json!([{"name": "work", "parameters": {"type": "object"}}]);
        let paused = run(&hw, json!({"model": model, "input": "go", "tools": tools})).await;
        assert_eq!(paused["status"], "paused", "{paused}");
        let path = format!("/v1/tasks/{}", paused["task_id"].as_str().unwrap());
        let results = json!([{"call_id": paused["pending"][0]["call_id"], "content": "42"}]);
        assert_eq!(hw.post(&format!("{path}/tool_results"), results).await.status, 202);
        let task = hw.wait_ended(paused["task_id"].as_str().unwrap()).await;
        assert_eq!(block_and_citations(&task), (json!({"type": "text", "text": "42"}), Value::Null), "{model}: {task}");
        let dialect = ProviderDialect::Responses;
        assert_eq!(dialect.results(&upstream.last_request(dialect)), ["\"42\""], "{model}");
        assert_eq!(dialect.instructions(&upstream.last_request(dialect)), "", "{model}");
    }
}

const SCENARIOS: &str = r#"
[[scenario]]
model = "child"
[[scenario.turn]]
steps = [{ text = "I have heard.[^1]" }]

[[scenario]]
[[scenario.turn]]
steps = [{ call = "work" }]
[[scenario.turn]]
steps = [{ call = "child", arguments = '{"prompt":"say it"}' }]
[[scenario.turn]]
steps = [{ text = "It is 42.[^1]" }]
"#;

#[tokio::test]
async fn an_agent_cannot_cite_what_it_was_not_shown() {
    let config = "[agents.root]\nmodel = \"mine/root\"\ntools = [\"work\", \"child\"]\n\
        [agents.child]\nmodel = \"mine/child\"\n[providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n";
    let hw = Server::with_config(&format!("{config}{TOOL}"), SCENARIOS);
    let task = run(&hw, json!({"model": "root", "input": "go"})).await;
    let (_, citations) = block_and_citations(&task);
    assert_eq!(citations[0]["reference_id"], 1, "the root was shown it: {task}");
    let child = task["output"].as_array().unwrap().iter().rfind(|item| item["type"] == "tool_result").unwrap();
    let blocks = child["block_list"].as_array().unwrap();
    let message = blocks.iter().find(|block| block["type"] == "message").expect("the child's message");
    assert_eq!(message["block_list"][0]["text"], "I have heard.[^1]");
    assert_eq!(message["block_list"][0]["annotations"], Value::Null, "{message}");
}
