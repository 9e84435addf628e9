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
match = "file"
[[scenario.turn]]
steps = [{ call = "s__file", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]

[[scenario]]
match = "die"
[[scenario.turn]]
steps = [{ call = "s__die", arguments = "{}" }]
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
async fn a_client_is_shown_the_tools_of_a_server_once_and_its_calls_with_their_label() {
    let hw = server("friendly", "approval = \"never\"");
    let ask = async |body: Value| {
        let reply = hw.post("/v1/responses", body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    let named = json!([{"type": "mcp", "server_label": "s", "server_url": "x"}]);
    let first = ask(json!({"model": "helper", "input": "echo", "tools": named})).await;
    let list = &first["output"][0];
    assert_eq!((&list["type"], &list["server_label"]), (&json!("mcp_list_tools"), &json!("s")), "{first}");
    let echo = list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(echo["input_schema"]["required"], json!(["text"]));
    let call = &first["output"][1];
    assert_eq!(
        (&call["type"], &call["name"], &call["server_label"]),
        (&json!("mcp_call"), &json!("echo"), &json!("s"))
    );
    let next = ask(json!({"model": "helper", "input": "echo", "previous_response_id": first["id"]})).await;
    let types: Vec<&Value> = next["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(types, ["mcp_call", "message"], "the list is the same");
    let unknown = json!({"model": "helper", "input": "echo", "tools": [{"type": "mcp", "server_label": "elsewhere"}]});
    let refused = hw.post("/v1/responses", unknown).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("tools[0].server_label"), "{}", refused.text);
}

#[tokio::test]
async fn a_file_of_an_mcp_server_is_stored_and_linked() {
    let hw = server("content", "approval = \"never\"");
    let task = run(&hw, "file").await;
    let blocks = &result_of(&task)["block_list"];
    assert_eq!(blocks[0]["text"], "See:", "{task}");
    let link = blocks[1]["text"].as_str().unwrap();
    let url = link.strip_prefix("[may.pdf](").and_then(|rest| rest.strip_suffix(')')).unwrap();
    let stored = hw.get(url).await;
    assert_eq!((stored.status, stored.text.as_str()), (200, "%PDF"), "{link}");
}

/// The rule of the tool decides, as after a crash of this server.
#[tokio::test]
async fn a_call_that_its_server_died_in_is_made_again_or_has_an_unknown_outcome() {
    let hw = server("friendly", "approval = \"never\"");
    let task = run(&hw, "die").await;
    let result = result_of(&task);
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("unknown"), &json!("outcome_unknown")), "{task}");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("The MCP server `s` exited with status 3: the disk is on fire. It may"), "{message}");
    assert_eq!((lines(&hw, "calls"), &task["status"]), (vec!["die".to_owned()], &json!("completed")));
    let hw = server("friendly", "approval = \"never\"\nidempotent = [\"die\"]");
    let task = run(&hw, "die").await;
    assert_eq!(result_of(&task)["status"], "unknown", "{task}");
    assert_eq!(lines(&hw, "calls"), ["die"; 3], "three starts at most");
}

#[tokio::test]
async fn a_missing_server_is_missing_or_fails_the_run_as_the_config_says() {
    let hw = server("exit", "");
    let task = run(&hw, "hello").await;
    assert_eq!(task["status"], "completed", "{task}");
    assert!(hw.log().contains("a run starts without an MCP server"), "{}", hw.log());
    let list = &task["output"][0];
    assert_eq!((&list["name"], &list["status"]), (&json!("mcp_list_tools"), &json!("failed")), "{task}");
    let error = json!("The MCP server `s` exited with status 2: no configuration");
    assert_eq!((&list["action"]["server_label"], &list["action"]["error"]), (&json!("s"), &error));
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

#[tokio::test]
async fn a_tool_that_changed_since_the_last_run_needs_an_approval_that_says_so() {
    let mut hw = server("changing", "approval = \"never\"");
    let task = run(&hw, "hello").await;
    assert_eq!(task["status"], "completed", "{task}");
    // The next process of the server describes the tool in another way.
    hw.kill9();
    hw.restart();
    let paused = run(&hw, "echo").await;
    assert_eq!(paused["status"], "paused", "{paused}");
    let inbox = hw.get("/v1/approvals").await.json();
    let note = inbox["data"][0]["note"].as_str().unwrap_or_else(|| panic!("{inbox}"));
    assert!(note.starts_with("The MCP server `s` describes this tool in another way than before."), "{note}");
    approve(&hw, &paused).await;
    let task = hw.wait_ended(paused["task_id"].as_str().unwrap()).await;
    assert_eq!(result_of(&task)["block_list"][0]["text"], "hello", "{task}");
    assert_eq!(run(&hw, "echo").await["status"], "completed", "the change was accepted");
    let metrics = hw.get("/metrics").await.text;
    assert!(metrics.contains(r#"headwater_mcp_calls_total{server="s",outcome="completed"} 2"#), "{metrics}");
}

#[test]
fn the_command_line_prints_tools_and_a_table_that_pins_them() {
    let hw = server("friendly", "deny = [\"flood\"]");
    let headwater = |args: &[&str]| {
        let config = hw.path("headwater.toml");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_headwater"))
            .args(args)
            .arg("--config")
            .arg(&config)
            .current_dir(hw.path(""))
            .output()
            .unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (list, errors) = headwater(&["mcp", "list", "s"]);
    assert!(list.contains("  echo sha256:") && list.contains("- flood sha256:"), "{list}{errors}");
    let (table, _) = headwater(&["mcp", "pin", "s"]);
    assert!(table.starts_with("[mcp.s.pin]\n\"arguments\" = \"sha256:") && !table.contains("flood"), "{table}");
    let (_, unknown) = headwater(&["mcp", "list", "other"]);
    assert!(unknown.contains("the config has no table `[mcp.other]`"), "{unknown}");
}
