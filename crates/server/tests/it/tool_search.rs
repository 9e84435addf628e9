//! Three hundred tools on three MCP servers: every provider is given a few, and finds the one that it needs.

use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use serde_json::{Value, json};

const TOOL: &str = "crm__get_invoice";

/// The servers, and an agent of each provider with all their tools.
fn config(upstream: &RecordingUpstream, keys: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp/tests/servers/hundred.py");
    let server = |name: &str| {
        format!(
            "[mcp.{name}]\ncommand = [\"python3\", \"{script}\", \"{name}\"]\nenv_pass = [\"PATH\"]\n\
             approval = \"never\"\nrequired = true\n"
        )
    };
    let keys = format!("tools = [\"mcp:crm\", \"mcp:files\", \"mcp:clock\"]\n{keys}");
    upstream.agents(&keys) + &["crm", "files", "clock"].map(server).concat()
}

/// A model that searches, calls what it found, and answers.
fn searching_model(dialect: ProviderDialect, body: &Value) -> String {
    match dialect.calls_and_results(body).1.len() {
        0 => dialect.full_call("tool_search", r#"{"query":"invoice by number"}"#),
        1 => dialect.full_call(TOOL, r#"{"number":7}"#),
        _ => dialect.full_answer("It is invoice 7."),
    }
}

async fn run(hw: &Server, agent: &str) -> Value {
    let reply = hw.post("/v1/tasks", json!({"model": agent, "input": "invoice 7?", "wait": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

#[tokio::test]
async fn a_model_with_three_hundred_tools_is_given_a_few_and_finds_the_right_one() {
    let upstream = RecordingUpstream::start(searching_model).await;
    let hw = Server::with_config(&config(&upstream, ""), "");
    for dialect in DIALECTS {
        let task = run(&hw, dialect.name()).await;
        assert_eq!(task["status"], "completed", "{task}");
        let results = task["output"].as_array().unwrap().iter().filter(|item| item["type"] == "tool_result");
        let texts: Vec<&str> = results.map(|result| result["block_list"][0]["text"].as_str().unwrap()).collect();
        assert!(texts[0].starts_with("crm__get_invoice: Returns an invoice by its number."), "{texts:?}");
        assert_eq!(texts[1], r#"crm get_invoice {"number": 7}"#);
        let requests = upstream.requests(dialect);
        let declared: Vec<Vec<String>> = requests.iter().map(|body| dialect.tool_names(body)).collect();
        assert!(declared.iter().all(|names| names.len() < 30), "{}: {declared:?}", dialect.name());
        let knows: Vec<bool> = declared.iter().map(|names| names.contains(&TOOL.to_owned())).collect();
        assert_eq!(knows, [false, true, true], "{}", dialect.name());
        let told = dialect.instructions(&requests[0]);
        for word in ["Namespace `crm` (100)", "Namespace `files` (100)", "clock__convert_time", "files__label_9"] {
            assert!(told.contains(word), "{word}: {told}");
        }
        let path = format!("/v1/tasks/{}/events?format=run-items", task["task_id"].as_str().unwrap());
        let frames = hw.frames(&path, None).await;
        let names: Vec<&str> = frames.iter().filter_map(|frame| frame.data["name"].as_str()).collect();
        let expected = [
            "mcp_list_tools",
            "mcp_list_tools",
            "mcp_list_tools",
            "tool_search_called",
            "tool_search_output_created",
            "tool_called",
            "tool_output",
            "message_output_created",
        ];
        let names: Vec<&str> = names.into_iter().filter(|name| *name != "reasoning_item_created").collect();
        assert_eq!(names, expected, "{}", dialect.name());
    }
}

#[tokio::test]
async fn what_a_run_has_found_is_there_after_a_kill_and_in_the_next_run() {
    let upstream = RecordingUpstream::start(searching_model).await;
    let mut hw = Server::with_config(&config(&upstream, ""), "");
    let dialect = ProviderDialect::Responses;
    let task = run(&hw, dialect.name()).await;
    hw.kill9();
    hw.restart();
    let body = json!({"model": dialect.name(), "input": "and again?", "thread_id": task["thread_id"], "wait": true});
    let next = hw.post("/v1/tasks", body).await.json();
    assert_eq!(next["status"], "completed", "{next}");
    assert!(dialect.tool_names(&upstream.last_request(dialect)).contains(&TOOL.to_owned()));
}

#[tokio::test]
async fn the_operator_can_leave_the_search_to_the_provider_or_switch_it_off() {
    for (keys, deferred) in [("tool_search = \"off\"", 0), ("tool_search = \"hosted\"", 300)] {
        let upstream = RecordingUpstream::start(|dialect, _| dialect.full_answer("Hello.")).await;
        let hw = Server::with_config(&config(&upstream, keys), "");
        for dialect in DIALECTS {
            run(&hw, dialect.name()).await;
            let body = upstream.last_request(dialect);
            let tools = body["tools"].as_array().unwrap();
            let marked = tools.iter().filter(|tool| tool["defer_loading"] == true).count();
            // The third protocol has no search: it is given everything.
            let expected = if dialect == ProviderDialect::Chat { 0 } else { deferred };
            assert_eq!(marked, expected, "{keys} {}", dialect.name());
            assert_eq!(tools.len(), 300 + usize::from(expected > 0), "{keys} {}", dialect.name());
        }
    }
}
