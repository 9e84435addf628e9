//! The shared state of a thread: every run begins with it, so that its records are whole by themselves.

use crate::harness::Server;
use crate::kill::stop_and_verify;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[agents.keeper]
model = "mine/keeper"
tools = ["set", "patch", "flood", "break"]
[tools.set]
kind = "command"
command = ["sh", "-c", "echo '{\"type\":\"state\",\"snapshot\":{\"a\":1}}'; echo '{\"message_content\":\"set\"}'"]
env_pass = ["PATH"]
[tools.patch]
kind = "command"
command = ["sh", "-c", "echo '{\"type\":\"state\",\"delta\":[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]}'; echo '{\"message_content\":\"patched\"}'"]
env_pass = ["PATH"]
[tools.break]
kind = "command"
command = ["sh", "-c", "echo '{\"type\":\"state\",\"delta\":[{\"op\":\"replace\",\"path\":\"/none/b\",\"value\":2}]}'; echo '{\"message_content\":\"broken\"}'"]
env_pass = ["PATH"]
[tools.flood]
kind = "command"
command = ["sh", "-c", "cat flood; echo '{\"message_content\":\"flooded\"}'"]
env_pass = ["PATH"]
[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;
const SCENARIOS: &str = r#"
[[scenario]]
match = 'run (?<name>\w+)'
[[scenario.turn]]
steps = [{ call = "{name}" }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]
"#;

/// Runs a tool in a thread; returns the task and the data of its events.
async fn run_tool(hw: &Server, tool: &str, thread: Option<&Value>) -> (Value, Vec<Value>) {
    let mut body = json!({"model": "keeper", "input": format!("run {tool}")});
    if let Some(thread) = thread {
        body["thread_id"] = thread.clone();
    }
    let task = hw.create_task(body).await;
    let id = task["task_id"].as_str().unwrap();
    let ended = hw.wait_ended(id).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    let frames = hw.frames(&format!("/v1/tasks/{id}/events"), None).await;
    (ended, frames.into_iter().map(|frame| frame.data).collect())
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test]
async fn a_run_begins_with_the_state_of_its_thread_and_the_folder_verifies() {
    let mut hw = Server::with_config(CONFIG, SCENARIOS);
    let (task, events) = run_tool(&hw, "set", None).await;
    let first_types: Vec<&str> = events[..3].iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(first_types[..2], ["task.created", "task.started"]);
    assert_ne!(first_types[2], "task.state.snapshot", "there is no state yet");
    for expected in [json!({"a": 1}), json!({"a": 2})] {
        let (_, events) = run_tool(&hw, "patch", Some(&task["thread_id"])).await;
        assert_eq!(events[1]["type"], "task.started");
        assert_eq!((&events[2]["type"], &events[2]["state"]), (&json!("task.state.snapshot"), &expected));
        assert_eq!(of_type(&events, "task.state.delta").len(), 1, "the patch applies");
        hw.kill9();
        hw.restart();
    }
    stop_and_verify(&mut hw);
}

#[tokio::test]
async fn a_state_that_is_too_large_and_a_patch_that_does_not_apply_are_refused() {
    let mut hw = Server::with_config(CONFIG, SCENARIOS);
    let add = |path: &str| {
        let operation = json!({"op": "add", "path": path, "value": "y".repeat(100_000)});
        json!({"type": "state", "delta": [operation]})
    };
    std::fs::write(hw.path("flood"), format!("{}\n{}\n", add("/x"), add("/y"))).unwrap();
    let (task, _) = run_tool(&hw, "set", None).await;
    for (tool, applied, why) in [("flood", 1, "more than 196608 bytes"), ("break", 0, "does not apply")] {
        let (_, events) = run_tool(&hw, tool, Some(&task["thread_id"])).await;
        let progress = of_type(&events, "task.tool.progress");
        assert_eq!(progress.len(), 1, "{tool}");
        let message = progress[0]["message"].as_str().unwrap();
        assert!(message.starts_with("The change of the state was refused") && message.contains(why), "{message}");
        assert_eq!(of_type(&events, "task.state.delta").len(), applied, "{tool}");
    }
    let (_, events) = run_tool(&hw, "patch", Some(&task["thread_id"])).await;
    let members: Vec<&String> = events[2]["state"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["a", "x"], "what was refused is not in the state");
    stop_and_verify(&mut hw);
}
