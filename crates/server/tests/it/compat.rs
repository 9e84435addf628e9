//! A data folder that version 0.1.0 wrote: its bytes are served as they were, and what was unfinished continues.

use crate::harness::{Server, headwater_command, parse_frames};
use base64::Engine as _;
use flate2::read::GzDecoder;
use postgres_testing::TestDatabase;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Output;

const PROTOCOLS: [&str; 7] = ["task", "run-items", "responses", "blocks", "agent-runs", "messages", "chat"];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data-folder-0.1.0")
}

fn gunzip(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// What the old binary served, and the ids of what it left unfinished.
fn served() -> Value {
    serde_json::from_slice(&gunzip(&fixture().join("served.json.gz"))).unwrap()
}

/// Copies the folder, and unpacks its database.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_name().unwrap().to_str().unwrap();
        match name.strip_suffix(".gz") {
            Some(unpacked) => std::fs::write(to.join(unpacked), gunzip(&source)).unwrap(),
            None if source.is_dir() => copy_folder(&source, &to.join(name)),
            None => _ = std::fs::copy(&source, to.join(name)).unwrap(),
        }
    }
}

fn copy_and_verify(dir: &Path) {
    for config in ["headwater.toml", "scenarios.toml"] {
        std::fs::copy(fixture().join(config), dir.join(config)).unwrap();
    }
    copy_folder(&fixture().join("data"), &dir.join("data"));
    let verified = headwater_command(dir).args(["verify", "--data-dir", "data"]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

/// Today's server on a verified copy of the old folder, used with the old folder's access key.
fn open_old_folder(served: &Value) -> Server {
    Server::on_folder(copy_and_verify).with_key(text(&served["key"]))
}

/// Today's server on a database into which the old folder was imported.
fn open_imported_folder(served: &Value) -> (Server, TestDatabase) {
    let database = TestDatabase::create();
    let copy_and_import = |dir: &Path| {
        copy_and_verify(dir);
        let mut import = headwater_command(dir);
        let imported =
            import.args(["import", "--data-dir", "data", "--database-url", &database.url()]).output().unwrap();
        assert!(imported.status.success(), "{imported:?}");
        let summary = String::from_utf8(imported.stdout).unwrap();
        assert!(summary.starts_with("imported 22 threads, ") && summary.lines().count() == 1, "{summary}");
    };
    let hw = Server::on_folder_and_database(copy_and_import, &database.url()).with_key(text(&served["key"]));
    (hw, database)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Comments and `retry` belong to the connection and not to the log.
fn without_comments(stream: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(stream) else { return stream.to_vec() };
    text.split_inclusive("\n\n")
        .filter(|frame| !frame.starts_with(':') && !frame.starts_with("retry:"))
        .collect::<String>()
        .into()
}

fn read_lines(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Frames of blocks without the events and members that were added after version 0.1.0, which its clients ignore.
fn without_additions(lines: &str) -> Vec<Value> {
    let mut frames = read_lines(lines);
    frames.retain(|frame| !matches!(text(&frame["type"]), "approval_resolved" | "input_added"));
    for frame in &mut frames {
        for (object, added) in [("", "input"), ("/delta", "expires_at")] {
            if let Some(object) = frame.pointer_mut(object).and_then(Value::as_object_mut) {
                object.remove(added);
            }
        }
    }
    frames
}

async fn assert_served(hw: &Server, path: &str, key: &str, body: &Value) {
    let expected = match body["base64"].as_str() {
        Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).unwrap(),
        None => text(&body["text"]).as_bytes().to_vec(),
    };
    let response = hw.client.get(hw.url(path)).bearer_auth(key).send().await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let bytes = response.bytes().await.unwrap();
    let (mut bytes, expected) = (without_comments(&bytes), without_comments(&expected));
    if path.contains("format=run-items") {
        bytes = without_interruption_additions(&String::from_utf8(bytes).unwrap()).into_bytes();
    }
    assert!(
        bytes == expected,
        "{path}\nserved now: {}\nserved then: {}",
        String::from_utf8_lossy(&bytes),
        String::from_utf8_lossy(&expected)
    );
}

/// Interruptions name their agent and task, which they did not then. All else stays as it is, byte for byte.
fn without_interruption_additions(frames: &str) -> String {
    let old = |line: &str| match line.strip_prefix("data: ").filter(|data| data.starts_with(r#"{"interruptions":[{"#)) {
        Some(data) => {
            let mut data: Value = serde_json::from_str(data).unwrap();
            for interruption in data["interruptions"].as_array_mut().unwrap() {
                interruption.as_object_mut().unwrap().retain(|name, _| name != "agent" && name != "task_id");
            }
            format!("data: {data}")
        }
        None => line.to_owned(),
    };
    frames.split('\n').map(old).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_data_folder_of_version_0_1_0_verifies_and_is_served_byte_for_byte() {
    let served = served();
    let hw = open_old_folder(&served);
    assert_everything_is_served(&hw, &served, |args| hw.run_cli(args)).await;
}

#[tokio::test]
async fn a_data_folder_of_version_0_1_0_is_imported_and_served_byte_for_byte() {
    let served = served();
    let (hw, _database) = open_imported_folder(&served);
    assert_everything_is_served(&hw, &served, |args| hw.run_cli_with_env(args)).await;
    let verified = hw.run_cli_with_env(&["verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

async fn assert_everything_is_served(hw: &Server, served: &Value, run_cli: impl Fn(&[&str]) -> Output) {
    for run in list(&served["finished"]) {
        for protocol in PROTOCOLS {
            let output = run_cli(&["replay", text(&run["task"]), "--as", protocol, "--fast"]);
            let stdout = String::from_utf8(output.stdout).unwrap();
            let then = text(&run["replays"][protocol]);
            if protocol == "blocks" {
                assert_eq!(without_additions(&stdout), read_lines(then), "{} as blocks", run["name"]);
            } else {
                assert_eq!(without_interruption_additions(&stdout), then, "{} as {protocol}", run["name"]);
            }
        }
    }
    for (path, body) in served["requests"].as_object().unwrap() {
        assert_served(hw, path, text(&served["key"]), body).await;
    }
    let shared = &served["shared"];
    assert_served(hw, text(&shared["path"]), text(&shared["token"]), &shared["body"]).await;
}

#[tokio::test]
async fn unfinished_runs_of_version_0_1_0_continue() {
    let served = served();
    let mut hw = open_old_folder(&served);
    assert_unfinished_runs_continue(&hw, &served).await;
    hw.kill9();
    let verified = hw.run_cli(&["verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

#[tokio::test]
async fn unfinished_runs_of_version_0_1_0_continue_after_an_import() {
    let served = served();
    let (hw, _database) = open_imported_folder(&served);
    assert_unfinished_runs_continue(&hw, &served).await;
    let verified = hw.run_cli_with_env(&["verify"]);
    assert!(verified.status.success(), "beside the server: {verified:?}");
}

async fn assert_unfinished_runs_continue(hw: &Server, served: &Value) {
    let killed = text(&served["killed"]["task"]);
    let events = hw.frames(&format!("/v1/tasks/{killed}/events"), None).await;
    let stream: String = events.iter().map(|frame| frame.raw.as_str()).collect();
    assert!(stream.starts_with(text(&served["killed"]["so_far"])), "what was logged before the kill: {stream}");
    assert_eq!(events.last().unwrap().event, "task.completed");

    let (approval, key) = (text(&served["approval"]["task"]), text(&served["approval"]["pending"]["key"]));
    let decision = json!({"decision": "approve"});
    let reply = hw.post(&format!("/v1/tasks/{approval}/approvals/{key}"), decision).await;
    assert!(matches!(reply.status, 200 | 202), "{}", reply.text);
    assert_eq!(hw.wait_ended(approval).await["status"], "completed");
    let events = hw.get(&format!("/v1/tasks/{approval}/events")).await.text;
    assert!(events.contains("Done: bought VNM."), "{events}");

    let client = text(&served["client_tool"]["task"]);
    let result = json!([{"call_id": served["client_tool"]["pending"]["call_id"], "content": "here"}]);
    let reply = hw.post(&format!("/v1/tasks/{client}/tool_results"), result).await;
    assert!(matches!(reply.status, 200 | 202), "{}", reply.text);
    assert_eq!(hw.wait_ended(client).await["status"], "completed");
}

#[tokio::test]
async fn a_conversation_of_version_0_1_0_continues() {
    let served = served();
    let hw = open_old_folder(&served);
    let conversation = text(&served["conversation"]);
    let path = format!("/v1/conversations/{conversation}/items?order=asc");
    let before = hw.get(&path).await.json();
    let body = json!({"model": "demo", "conversation": conversation, "input": "weather"});
    let response = hw.post("/v1/responses", body).await;
    assert_eq!((response.status, &response.json()["status"]), (200, &json!("completed")), "{}", response.text);
    let after = hw.get(&path).await.json();
    // The item that no response had read is read by this one and becomes a part of its input.
    let (before, after) = (list(&before["data"]), list(&after["data"]));
    let (unread, read) = before.split_last().unwrap();
    assert_eq!(after[..read.len()], *read);
    let input = list(&after[read.len()]["content"]);
    assert_eq!((&input[0], &input[1]["text"]), (&unread["content"][0], &json!("weather")));

    let body = json!({"message": "hello", "threadId": "chat-1", "agent": "demo"});
    let started = hw.post("/api/v1/agent/runs", body).await;
    assert_eq!(started.status, 202, "{}", started.text);
    let alias = list(&served["finished"]).iter().find(|run| run["name"] == "alias").unwrap();
    let run = started.json();
    let task = format!("task_{}", text(&run["runId"]).trim_start_matches("task_"));
    assert_eq!(hw.wait_ended(&task).await["thread_id"], alias["thread"]);

    let compacted = list(&served["finished"]).iter().find(|run| run["name"] == "compact-2").unwrap();
    let body = json!({"model": "compact", "input": "hello", "thread_id": compacted["thread"]});
    let task = hw.create_task(body).await;
    let events = hw.get(&format!("/v1/tasks/{}/events", text(&task["task_id"]))).await.text;
    assert_eq!(parse_frames(&events).last().unwrap().event, "task.completed");
}
