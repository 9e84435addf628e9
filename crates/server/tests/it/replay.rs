//! `headwater replay`: replays a logged run as its clients saw it.

use crate::harness::{Server, SseFrame, TEST_TIMEOUT, headwater_command, parse_frames};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Everything that the demo can do.
const SCENARIOS: [&str; 12] = [
    "hello",
    "weather",
    "help",
    "parallel",
    "trade",
    "handoff",
    "image",
    "story 5",
    "story 300 fast",
    "client",
    "fail",
    "slow 1",
];

/// A run that has ended.
struct Run {
    id: String,
    thread: String,
}

impl Run {
    /// Plays a scenario to its end and answers what it waits for.
    async fn start(hw: &Server, input: &str) -> Self {
        let tools = if input == "client" { json!([{"name": "locate"}]) } else { json!([]) };
        let task = hw.create_task(json!({"model": "demo", "input": input, "tools": tools})).await;
        let name = |field: &str| task[field].as_str().unwrap().to_owned();
        let run = Self { id: name("task_id"), thread: name("thread_id") };
        if matches!(input, "trade" | "client") {
            let answer = match run.pending(hw).await {
                (key, _) if !key.is_empty() => (format!("approvals/{key}"), json!({"decision": "approve"})),
                (_, call) => ("tool_results".to_owned(), json!([{"call_id": call, "content": "here"}])),
            };
            let reply = hw.post(&format!("/v1/tasks/{}/{}", run.id, answer.0), answer.1).await;
            assert!(matches!(reply.status, 200 | 202), "{}", reply.text);
        }
        hw.wait_ended(&run.id).await;
        run
    }

    /// What a run waits for: an approval's key, if it is one, and the call.
    async fn pending(&self, hw: &Server) -> (String, String) {
        let mut stream = hw.open_stream(&format!("/v1/tasks/{}/events", self.id)).await;
        let seen = parse_frames(stream.read_until("event: task.paused").await);
        let paused = seen.iter().rfind(|frame| frame.event == "task.paused").unwrap();
        let field = |name: &str| paused.data["pending"][0][name].as_str().unwrap_or_default().to_owned();
        (field("key"), field("call_id"))
    }

    /// The id of one of its responses.
    fn response(&self, segment: u32) -> String {
        let suffix = self.id.trim_start_matches("task_");
        if segment > 1 { format!("resp_{suffix}_{segment}") } else { format!("resp_{suffix}") }
    }
}

/// The stdout of a successful replay.
fn replayed(hw: &Server, run: &str, protocol: &str) -> String {
    let output = hw.run_cli(&["replay", run, "--as", protocol, "--fast"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{run} as {protocol}");
    String::from_utf8(output.stdout).unwrap()
}

/// A stream without what belongs to its connection.
fn bare(stream: &str) -> String {
    let is_frame = |piece: &&str| piece.lines().any(|line| line.starts_with("data: "));
    stream.split_inclusive("\n\n").filter(is_frame).collect()
}

/// An endless stream, up to the last frame of a replay; nothing follows it.
async fn endless(hw: &Server, path: &str, replay: &str) -> String {
    let last = replay.split_inclusive("\n\n").last().unwrap();
    bare(hw.open_stream(path).await.read_until(last).await)
}

/// The rest of a successful replay's output when the run has not ended.
fn unended(output: &Output, run: &str) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let told = format!("headwater: run {run} has not ended: this is the output so far\n");
    assert_eq!((output.status.code(), &*stderr), (Some(1), &*told));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test]
async fn a_replay_equals_the_stream_in_every_scenario_and_protocol() {
    let hw = Server::demo();
    for input in SCENARIOS {
        let run = Run::start(&hw, input).await;
        let Run { id, thread } = &run;
        let native = bare(&hw.get(&format!("/v1/tasks/{id}/events")).await.text);
        assert_eq!(replayed(&hw, id, "task"), native, "{input}");
        let items = bare(&hw.get(&format!("/v1/tasks/{id}/events?format=run-items")).await.text);
        assert_eq!(replayed(&hw, id, "run-items"), items, "{input}");
        let replay = replayed(&hw, id, "agent-runs");
        assert_eq!(replay, endless(&hw, &format!("/api/v1/agent/runs/{thread}/events"), &replay).await, "{input}");
        assert!(replay.contains(if input == "fail" { "RUN_ERROR" } else { "RUN_FINISHED" }), "{input}");
        assert!(items.contains("run_ended") && native.contains("event: task.created"), "{input}");
    }
}

#[tokio::test]
async fn the_streams_of_front_ends_replay_as_sent() {
    let hw = Server::demo();
    let newest = async || hw.get("/v1/tasks?limit=1").await.json()["data"][0]["task_id"].as_str().unwrap().to_owned();
    for (n, input) in ["weather", "help", "fail", "hello"].into_iter().enumerate() {
        for (protocol, version) in [("ag-ui", json!("1.0")), ("ag-ui-0.0.59", Value::Null)] {
            let name = format!("{}-{n}", protocol.replace('.', "-"));
            let message = json!({"id": "m-1", "role": "user", "content": input});
            let body = json!({"threadId": name, "runId": "run-1", "messages": [message], "protocolVersion": version});
            let sent = bare(&hw.post("/agui/demo", body).await.text);
            assert_eq!(replayed(&hw, &newest().await, protocol), sent, "{input}");
        }
        for (protocol, ui) in [("ui-stream", 6), ("ui-stream-7", 7)] {
            let message = json!({"id": "m-1", "role": "user", "parts": [{"type": "text", "text": input}]});
            let body = json!({"id": format!("{protocol}-{n}"), "agent": "demo", "message": message});
            let sent = bare(&hw.post(&format!("/api/chat?ui={ui}"), body).await.text);
            assert_eq!(replayed(&hw, &newest().await, protocol), sent, "{input}");
        }
    }
}

#[tokio::test]
async fn the_responses_of_a_run_replay_in_order_or_by_id() {
    let hw = Server::demo();
    for input in SCENARIOS {
        let run = Run::start(&hw, input).await;
        let segments = if matches!(input, "trade" | "client") { 2 } else { 1 };
        let mut all = String::new();
        for segment in 1..=segments {
            let name = run.response(segment);
            let stream = bare(&hw.get(&format!("/v1/responses/{name}?stream=true")).await.text);
            assert!(stream.ends_with("data: [DONE]\n\n"), "{input}: {stream}");
            assert_eq!(replayed(&hw, &name, "responses"), stream, "{input}");
            all.push_str(&stream);
        }
        assert_eq!(replayed(&hw, &run.id, "responses"), all, "{input}");
        // Without segments, every id of a run means the run.
        assert_eq!(replayed(&hw, &run.response(segments), "task"), replayed(&hw, &run.id, "task"));
        let none = hw.run_cli(&["replay", &run.response(segments + 1), "--as", "responses"]);
        refused(&none, &format!("run {} has no response number {}", run.id, segments + 1));
    }
}

#[tokio::test]
async fn a_run_replays_in_the_protocol_of_its_request() {
    let hw = Server::demo();
    let reply =
        hw.post("/v1/responses", json!({"model": "demo", "input": "weather", "stream": true, "user": "u"})).await;
    let stream = bare(&reply.text);
    let first = stream.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let first: Value = serde_json::from_str(first).unwrap();
    assert_eq!(replayed(&hw, first["response"]["id"].as_str().unwrap(), "responses"), stream);

    let names = hw.post("/api/v1/agent/runs", json!({"message": "weather", "threadId": "mine"})).await.json();
    hw.wait_ended(names["runId"].as_str().unwrap()).await;
    let replay = replayed(&hw, names["runId"].as_str().unwrap(), "agent-runs");
    let stream = endless(&hw, "/api/v1/agent/runs/mine/events", &replay).await;
    assert!(stream.contains("\"threadId\":\"mine\""));
    assert_eq!(replay, stream);
}

/// A request: the first input and, after a client tool call, its result.
type Turn = fn(&str, Option<&Value>) -> Value;

fn chat(input: &str, called: Option<&Value>) -> Value {
    let mut messages = vec![json!({"role": "user", "content": input})];
    if let Some(id) = called {
        let call = json!({"id": id, "type": "function", "function": {"name": "locate", "arguments": "{}"}});
        messages.push(json!({"role": "assistant", "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "here"}));
    }
    let tool = json!({"type": "function", "function": {"name": "locate", "parameters": {"type": "object"}}});
    json!({"model": "demo", "stream": true, "messages": messages, "tools": [tool]})
}

fn messages(input: &str, called: Option<&Value>) -> Value {
    let mut messages = vec![json!({"role": "user", "content": input})];
    if let Some(id) = called {
        let call = json!({"type": "tool_use", "id": id, "name": "locate", "input": {}});
        messages.push(json!({"role": "assistant", "content": [call]}));
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": "here"});
        messages.push(json!({"role": "user", "content": [result]}));
    }
    let tool = json!({"name": "locate", "input_schema": {"type": "object"}});
    json!({"model": "demo", "stream": true, "max_tokens": 1000, "messages": messages, "tools": [tool]})
}

#[tokio::test]
async fn answers_that_cannot_be_resumed_replay_as_sent() {
    let hw = Server::demo();
    let protocols: [(&str, &str, Turn); 2] =
        [("chat", "/v1/chat/completions", chat), ("messages", "/v1/messages", messages)];
    for (protocol, path, turn) in protocols {
        for input in SCENARIOS.into_iter().filter(|input| *input != "trade") {
            let first = hw.post(path, turn(input, None)).await;
            assert_eq!(first.status, 200, "{}", first.text);
            let frames = data(&bare(&first.text));
            let name = frames[0]["id"].as_str().or(frames[0]["message"]["id"].as_str()).unwrap();
            let run = format!("task_{}", name.trim_start_matches("chatcmpl-").trim_start_matches("msg_"));
            let mut all = bare(&first.text);
            if input == "client" {
                let called = |frame: &Value| {
                    let chat = &frame["choices"][0]["delta"]["tool_calls"][0]["id"];
                    let block = &frame["content_block"]["id"];
                    [chat, block].into_iter().find(|id| id.is_string()).cloned()
                };
                let call = frames.iter().find_map(called).unwrap();
                all.push_str(&bare(&hw.post(path, turn(input, Some(&call))).await.text));
            }
            assert_eq!(replayed(&hw, &run, protocol), all, "{input} as {protocol}");
        }
    }
}

/// Sends a message to a session over a WebSocket, and returns the lines of the answering turn.
async fn said_on_a_socket(hw: &Server, session: &str, input: &str) -> String {
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        hw.address
    );
    stream.write_all(upgrade.as_bytes()).await.unwrap();
    let chat = json!({"type": "chat", "session_id": session, "content": input}).to_string();
    // A mask of zeros leaves the text unchanged.
    let head = [0x81, 0x80 | u8::try_from(chat.len()).unwrap(), 0, 0, 0, 0];
    let mut bytes = Vec::new();
    let mut lines = String::new();
    let mut upgraded = false;
    while !lines.contains("\"type\":\"message_stop\"") {
        let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_buf(&mut bytes)).await.expect("something in time");
        assert!(read.unwrap() > 0, "{}", String::from_utf8_lossy(&bytes));
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n").filter(|_| !upgraded) {
            bytes.drain(..end + 4);
            stream.write_all(&[&head[..], chat.as_bytes()].concat()).await.unwrap();
            upgraded = true;
        }
        while upgraded && let Some(text) = message(&mut bytes) {
            lines.push_str(&text);
            lines.push('\n');
        }
    }
    lines
}

/// Takes a complete message off the received bytes.
fn message(bytes: &mut Vec<u8>) -> Option<String> {
    let (start, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap()))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap())).unwrap()),
        short => (2, usize::from(short)),
    };
    let payload = bytes.get(start..start + length)?.to_vec();
    assert_eq!(bytes[0], 0x81, "a text, and all of it");
    bytes.drain(..start + length);
    Some(String::from_utf8(payload).unwrap())
}

#[tokio::test]
async fn a_turn_on_a_socket_replays_line_by_line() {
    let hw = Server::demo();
    for input in SCENARIOS.into_iter().filter(|input| !matches!(*input, "trade" | "client")) {
        let turn = said_on_a_socket(&hw, "mine", input).await;
        let start: Value = serde_json::from_str(turn.lines().next().unwrap()).unwrap();
        assert_eq!(start["session_id"], "mine");
        assert_eq!(replayed(&hw, start["message_id"].as_str().unwrap(), "blocks"), turn, "{input}");
    }
}

/// The data of server-sent events without ids.
fn data(stream: &str) -> Vec<Value> {
    assert!(!stream.contains("id: "), "{stream}");
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn a_run_started_in_one_protocol_is_complete_in_every_other() {
    let hw = Server::demo();
    for input in SCENARIOS {
        let run = Run::start(&hw, input).await;
        let answers = if input == "client" { 2 } else { 1 };
        let count = |frames: &[Value], field: &str, name: &str| frames.iter().filter(|f| f[field] == name).count();

        let blocks = replayed(&hw, &run.id, "blocks");
        let blocks: Vec<Value> = blocks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(blocks.iter().all(|frame| frame["cursor"].is_string() && frame["message_id"] == *run.id), "{input}");
        assert_eq!((&blocks[0]["type"], &blocks[0]["session_id"]), (&json!("message_start"), &json!(run.thread)));
        assert_eq!(blocks.last().unwrap()["type"], "message_stop", "{input}");

        let messages = data(&replayed(&hw, &run.id, "messages"));
        assert_eq!(count(&messages, "type", "message_start"), answers, "{input}");
        let end = if input == "fail" { "error" } else { "message_stop" };
        assert_eq!(count(&messages, "type", end), answers, "{input}");

        let chat = replayed(&hw, &run.id, "chat");
        assert_eq!(chat.matches("data: [DONE]\n\n").count(), answers, "{input}");
        assert!(chat.ends_with("data: [DONE]\n\n"), "{input}");
        let said: String = data(&chat).iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
        let object = hw.get(&format!("/v1/tasks/{}", run.id)).await.json();
        let last = object["output"].as_array().unwrap().iter().rfind(|item| item["type"] == "message").unwrap();
        let text = last["block_list"][0]["text"].as_str().unwrap();
        assert!(said.contains(text) && !text.is_empty(), "{input}: {said}");
    }
    let client = Run::start(&hw, "client").await;
    let second = replayed(&hw, &client.response(2), "chat");
    assert!(replayed(&hw, &client.id, "chat").ends_with(&second) && second.matches("[DONE]").count() == 1);
}

/// The times of the first and the last record.
fn lasted(frames: &[SseFrame]) -> Duration {
    let at = |frame: Option<&SseFrame>| frame.unwrap().data["at"].as_u64().unwrap();
    Duration::from_millis(at(frames.last()) - at(frames.first()))
}

#[tokio::test]
async fn a_replay_takes_as_long_as_the_run_unless_fast() {
    let hw = Server::demo();
    for input in ["story 60", "slow 1"] {
        let run = Run::start(&hw, input).await;
        let logged = hw.frames(&format!("/v1/tasks/{}/events", run.id), None).await;
        let lasted = lasted(&logged);
        assert!(lasted >= Duration::from_secs(1), "{input} took {lasted:?}");
        let mut child = replaying(&hw, &run.id).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut all = String::new();
        out.read_line(&mut all).unwrap();
        let began = Instant::now();
        out.read_to_string(&mut all).unwrap();
        let took = began.elapsed();
        assert!(child.wait().unwrap().success());
        // The first line may have been read late.
        assert!(took > lasted / 2 && took < lasted * 5, "{input}: {took:?}, but it took {lasted:?}");
        assert_eq!(all, replayed(&hw, &run.id, "task"));
        let began = Instant::now();
        replayed(&hw, &run.id, "task");
        assert!(began.elapsed() < took, "{:?}", began.elapsed());
    }
}

fn replaying(hw: &Server, run: &str) -> Command {
    let mut command = headwater_command(&hw.path("."));
    command.args(["replay", run, "--data-dir", "data"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Every file of a folder and its bytes, except SQLite's shared-memory file.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let named = files.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| !name.ends_with("-shm")).collect()
}

#[tokio::test]
async fn an_active_run_replays_as_far_as_logged_even_if_the_server_stops() {
    let mut hw = Server::demo();
    let task = hw.start_run("trade").await;
    let name = |field: &str| task[field].as_str().unwrap().to_owned();
    let run = Run { id: name("task_id"), thread: name("thread_id") };
    let path = format!("/v1/tasks/{}/events", run.id);
    let (key, _) = run.pending(&hw).await;
    let replay = |hw: &Server, protocol: &str| hw.run_cli(&["replay", &run.id, "--as", protocol]);
    let seen = unended(&replay(&hw, "task"), &run.id);
    assert_eq!(seen, endless(&hw, &path, &seen).await);
    let first = unended(&replay(&hw, "responses"), &run.id);
    assert!(first.ends_with("data: [DONE]\n\n") && first.matches("[DONE]").count() == 1, "a response ends at a pause");
    let open = unended(&replay(&hw, "chat"), &run.id);
    assert!(!open.contains("[DONE]"), "a completion does not");

    hw.kill9();
    let left = files(&hw.data_dir());
    assert_eq!(unended(&replay(&hw, "task"), &run.id), seen, "killed");
    assert_eq!(files(&hw.data_dir()), left, "nothing was changed");
    hw.restart();
    assert_eq!(unended(&replay(&hw, "task"), &run.id), seen, "restarted");
    let reply = hw.post(&format!("/v1/tasks/{}/approvals/{key}", run.id), json!({"decision": "approve"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let whole = bare(&hw.get(&path).await.text);
    assert!(whole.starts_with(&seen));
    assert_eq!(replayed(&hw, &run.id, "task"), whole);
    assert!(replayed(&hw, &run.id, "responses").starts_with(&first));

    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    let left = files(&hw.data_dir());
    assert_eq!(replayed(&hw, &run.id, "task"), whole, "stopped");
    assert_eq!(files(&hw.data_dir()), left);
}

#[tokio::test]
async fn a_replay_after_a_kill_contains_everything_that_was_seen() {
    let mut hw = Server::demo();
    let task = hw.start_run("story 500").await;
    let id = task["task_id"].as_str().unwrap();
    let mut stream = hw.open_stream(&format!("/v1/tasks/{id}/events")).await;
    stream.read_until("event: task.text.delta").await;
    let live = unended(&hw.run_cli(&["replay", id, "--fast"]), id);
    hw.kill9();
    let _cut = stream.read_to_end().await;
    let seen: String = parse_frames(stream.read_until("").await).into_iter().map(|frame| frame.raw).collect();
    let dead = unended(&hw.run_cli(&["replay", id, "--fast"]), id);
    assert!(dead.starts_with(&seen) && dead.starts_with(&live) && live.contains("task.text.delta"));
}

#[tokio::test]
async fn a_queued_run_has_nothing_to_replay() {
    let hw = Server::demo();
    let first = hw.start_run("trade").await;
    let second = hw.create_task(json!({"model": "demo", "input": "hello", "thread_id": first["thread_id"]})).await;
    let id = second["task_id"].as_str().unwrap();
    for protocol in ["task", "responses"] {
        let output = hw.run_cli(&["replay", id, "--as", protocol]);
        let told = format!("headwater: run {id} has not started\n");
        assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(1), told));
        assert!(output.stdout.is_empty());
    }
}

/// One line on stderr, nothing on stdout, and the documented exit code.
#[track_caller]
fn refused(output: &Output, why: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(2), &*format!("headwater: {why}\n")));
    assert!(output.stdout.is_empty());
}

#[tokio::test]
async fn an_impossible_replay_is_refused_in_one_line() {
    let hw = Server::demo();
    let run = Run::start(&hw, "hello").await;
    let data = hw.data_dir();
    let unknown = "task_00000000000000000000000000000000";
    refused(&hw.run_cli(&["replay", unknown]), &format!("no run {unknown} in {}", data.display()));
    let why = "is not the id of a run (`task_…`) or of a response (`resp_…`)";
    for id in ["", "task", "call_1", "thr_1", "resp_", "resp_1_0", "resp_1_02", "task_../x", "task_1\nx"] {
        refused(&hw.run_cli(&["replay", id]), &format!("{id:?} {why}"));
    }
    let known =
        "task, run-items, responses, blocks, agent-runs, messages, chat, ag-ui, ag-ui-0.0.59, ui-stream or ui-stream-7";
    for name in ["", "Task", "a\nb"] {
        let why = format!("unknown protocol {name:?}: use {known}");
        refused(&hw.run_cli(&["replay", &run.id, "--as", name]), &why);
    }
    let elsewhere = |dir: &Path| {
        let mut command = headwater_command(&hw.path("."));
        command.args(["replay", &run.id, "--data-dir"]).arg(dir).output().unwrap()
    };
    let (none, empty, file) = (hw.path("none"), hw.path("empty"), hw.path("headwater.toml"));
    refused(&elsewhere(&none), &format!("the data folder {} does not exist", none.display()));
    assert!(!none.exists());
    std::fs::create_dir(&empty).unwrap();
    let foreign =
        format!("{} is not a database of Headwater: use another data folder", empty.join("headwater.db").display());
    refused(&elsewhere(&empty), &foreign);
    assert_eq!(files(&empty).len(), 0);
    refused(&elsewhere(&file), &format!("{} is not a folder: use another path for the data folder", file.display()));
}

#[tokio::test]
async fn closing_the_pipe_ends_a_replay_quietly() {
    let hw = Server::demo();
    let run = Run::start(&hw, "story 3000 fast").await;
    for fast in [&["--fast"][..], &[]] {
        let mut child = replaying(&hw, &run.id).args(fast).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("id: "), "{line}");
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
    }
}

#[test]
fn the_help_names_the_exit_codes() {
    let output = headwater_command(Path::new(".")).args(["replay", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let codes =
        "Exit code 0: replayed, 1: the run has not ended and was replayed so far, 2: the run could not be replayed.";
    assert!(help.contains(codes), "{help}");
}
