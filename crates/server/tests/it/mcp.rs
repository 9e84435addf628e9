//! Tools of MCP servers, from the request to the process.

use crate::broker_fixture::decide;
use crate::harness::Server;
use serde_json::{Value, json};

const SCENARIOS: &str = r#"
[[scenario]]
match = "echo"
[[scenario.turn]]
steps = [{ call = "s__echo", arguments = '{"text":"hello"}' }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]

[[scenario]]
match = "progress"
[[scenario.turn]]
steps = [{ call = "s__progress", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]

[[scenario]]
match = "image"
[[scenario.turn]]
steps = [{ call = "s__image", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]

[[scenario]]
match = "fork"
[[scenario.turn]]
steps = [{ call = "s__fork", arguments = "{}" }]
[[scenario.turn]]
steps = [{ call = "s__hang", arguments = "{}" }]

[[scenario]]
[[scenario.turn]]
steps = [{ text = ["Hello."] }]
"#;

/// A config with the test server in a mode; its traces are in the folder of the server.
fn config(mode: &str, keys: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp/tests/servers/server.py");
    format!(
        "[agents.helper]\nmodel = \"mine/any\"\ntools = [\"mcp:s\"]\n\
         [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n\
         [mcp.s]\ncommand = [\"python3\", \"{script}\", \"{mode}\"]\nenv_pass = [\"PATH\", \"HOME\"]\n{keys}\n"
    )
}

fn server(mode: &str, keys: &str) -> Server {
    Server::with_config(&config(mode, keys), SCENARIOS)
}

async fn run(hw: &Server, input: &str) -> Value {
    let reply = hw.post("/v1/tasks", json!({"model": "helper", "input": input, "wait": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

fn result_of(task: &Value) -> &Value {
    let results = task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_result");
    results.unwrap_or_else(|| panic!("no result: {task}"))
}

fn lines(hw: &Server, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(hw.path(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

async fn approve(hw: &Server, task: &Value) {
    let reply = decide(hw, task, json!({"decision": "approve"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[tokio::test]
async fn a_run_calls_tools_of_a_server_and_shows_their_progress_and_images() {
    for mode in ["friendly", "modern"] {
        let hw = server(mode, "approval = \"never\"");
        let task = run(&hw, "echo").await;
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(result_of(&task)["block_list"][0]["text"], "hello", "{task}");
        let task = run(&hw, "progress").await;
        let frames = hw.frames(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap()), None).await;
        let progress: Vec<&Value> = frames
            .iter()
            .filter(|frame| frame.event == "task.tool.progress")
            .map(|frame| &frame.data["message"])
            .collect();
        assert_eq!(progress, ["step 1", "step 2", "step 3"], "{mode}");
        let task = run(&hw, "image").await;
        let url = result_of(&task)["block_list"][0]["image_url"]["url"].as_str().unwrap().to_owned();
        assert!(url.starts_with("/v1/blobs/"), "{task}");
        assert_eq!(hw.get(&url).await.status, 200);
        assert_eq!(lines(&hw, "pids").len(), 1, "{mode}: one process for all runs");
    }
}

#[tokio::test]
async fn a_paused_run_keeps_its_tools_across_a_kill_and_a_changed_config() {
    let mut hw = server("friendly", "");
    let paused = run(&hw, "echo").await;
    assert_eq!(paused["status"], "paused", "a call requires an approval unless the config says otherwise: {paused}");
    assert_eq!(lines(&hw, "calls"), [""; 0]);
    hw.kill9();
    let without = config("friendly", "").replace("tools = [\"mcp:s\"]", "").split("[mcp.s]").next().unwrap().to_owned();
    std::fs::write(hw.path("headwater.toml"), without).unwrap();
    hw.restart();
    approve(&hw, &paused).await;
    let task = hw.wait_ended(paused["task_id"].as_str().unwrap()).await;
    assert_eq!((&task["status"], &result_of(&task)["block_list"][0]["text"]), (&json!("completed"), &json!("hello")));
    assert_eq!((lines(&hw, "calls"), lines(&hw, "pids").len()), (vec!["echo".to_owned()], 2));
    let next = run(&hw, "hello").await;
    assert_eq!(next["status"], "completed", "{next}");
}

#[tokio::test]
async fn a_tool_that_changed_while_its_call_waited_for_approval_is_not_called() {
    let mut hw = server("changing", "");
    let paused = run(&hw, "echo").await;
    hw.kill9();
    hw.restart();
    approve(&hw, &paused).await;
    let task = hw.wait_ended(paused["task_id"].as_str().unwrap()).await;
    let result = result_of(&task);
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("failed"), &json!("tool_changed")), "{result}");
    assert_eq!(lines(&hw, "calls"), [""; 0]);
}

#[tokio::test]
async fn a_missing_server_is_missing_or_fails_the_run_as_the_config_says() {
    let hw = server("exit", "");
    let task = run(&hw, "hello").await;
    assert_eq!(task["status"], "completed", "{task}");
    assert!(hw.log().contains("a run starts without an MCP server"), "{}", hw.log());
    let hw = server("exit", "required = true");
    let task = run(&hw, "hello").await;
    assert_eq!((&task["status"], &task["error"]["code"]), (&json!("failed"), &json!("mcp_unavailable")), "{task}");
    let message = task["error"]["message"].as_str().unwrap();
    assert_eq!(message, "The MCP server `s` exited with status 2: no configuration");
}

#[tokio::test]
async fn no_process_of_an_mcp_server_survives_the_server() {
    for ending in ["kill", "stop"] {
        let mut hw = server("stubborn", "approval = \"never\"");
        let _task = hw.create_task(json!({"model": "helper", "input": "fork"})).await;
        hw.wait_until("the call hangs", async || lines(&hw, "calls") == ["fork", "hang"]).await;
        let pids = lines(&hw, "pids");
        assert_eq!(pids.iter().map(|pid| is_alive(pid)).collect::<Vec<_>>(), [true, true]);
        match ending {
            "kill" => hw.kill9(),
            _ => {
                hw.signal("-TERM");
                hw.wait_exit();
            }
        }
        hw.wait_until("both have ended", async || !pids.iter().any(|pid| is_alive(pid))).await;
    }
}
