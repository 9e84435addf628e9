//! A cancel ends all activity of a run and leaves nothing behind.

use crate::harness::{OpenStream, Server, SseFrame, TEST_TIMEOUT, http_client, parse_frames};
use crate::tool_server::ToolServer;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The promise is a second; a test fails on time only at five times the promise.
const AT_ONCE: Duration = Duration::from_secs(5);

const CONFIG: &str = r#"
[agents.guide]
model = "mine/guide"
tools = ["quick", "stubborn", "asleep", "hanging"]

[tools.quick]
kind = "command"
command = "true"
env_pass = ["PATH"]

[tools.stubborn]
kind = "command"
command = ["sh", "-c", "trap '' TERM; sleep 60 & echo $$ $! > new; mv new pids; wait"]
env_pass = ["PATH"]

[tools.asleep]
kind = "command"
command = ["sh", "-c", '''echo "{\"type\":\"custom\",\"name\":\"pid\",\"value\":$$}"; exec sleep 60''']
env_pass = ["PATH"]

[tools.hanging]
kind = "http"
method = "POST"
url = "URL"

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

const SCENARIOS: &str = r#"
[[scenario]]
match = '\buse (?<tool_name>\w+)'
[[scenario.turn]]
usage = { input_tokens = 10, output_tokens = 5 }
steps = [{ text = "I use it." }, { call = "{tool_name}" }]
[[scenario.turn]]
usage = { input_tokens = 20, output_tokens = 7 }
steps = [{ text = ["Half a ", "sentence"] }, { pause_ms = 600000 }, { text = ", never ended." }]

[[scenario]]
match = '\bhush\b'
[[scenario.turn]]
steps = [{ text = "Half" }, { pause_ms = 600000 }]

[[scenario]]
[[scenario.turn]]
steps = [{ text = "Hello." }]
"#;

fn cancel_server(site: &ToolServer) -> Server {
    Server::with_config(&CONFIG.replace("URL", &site.url("/hang")), SCENARIOS)
}

/// A run and a stream that follows it.
async fn start_watched_run(hw: &Server, input: &str) -> (String, OpenStream) {
    let task = hw.create_task(json!({"model": "guide", "input": input})).await;
    let task = task["task_id"].as_str().unwrap().to_owned();
    let watcher = hw.open_stream(&format!("/v1/tasks/{task}/events")).await;
    (task, watcher)
}

/// Cancels a run. Returns what its stream showed, and the time until the stream ended.
async fn cancel(hw: &Server, task: &str, watcher: &mut OpenStream) -> (Vec<SseFrame>, Duration) {
    let begun = Instant::now();
    let reply = hw.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let seen = parse_frames(watcher.read_to_end().await.unwrap());
    let took = begun.elapsed();
    let ends = ["task.completed", "task.failed", "task.cancelled", "task.incomplete"];
    let ends: Vec<&str> = seen.iter().map(|frame| frame.event.as_str()).filter(|event| ends.contains(event)).collect();
    assert_eq!((ends, seen.last().unwrap().event.as_str()), (vec!["task.cancelled"], "task.cancelled"));
    (seen, took)
}

/// The run afterwards: cancelled, nothing open, and with the tokens of its complete turn.
async fn object(hw: &Server, task: &str) -> Value {
    let object = hw.get(&format!("/v1/tasks/{task}")).await.json();
    assert_eq!((&object["status"], &object["pending"]), (&json!("cancelled"), &json!([])));
    let usage = &object["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(10), &json!(5)), "{object}");
    let output = object["output"].as_array().unwrap();
    assert!(output.iter().all(|item| item["status"] != "in_progress"), "{object}");
    object
}

/// Whether this process is alive. A zombie is not.
fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_cancel_of_a_silent_model_ends_the_stream_and_keeps_the_partial_text() {
    let hw = cancel_server(&ToolServer::start().await);
    let (task, mut watcher) = start_watched_run(&hw, "use quick").await;
    watcher.read_until("\"delta\":\"sentence\"").await;
    let (seen, took) = cancel(&hw, &task, &mut watcher).await;
    eprintln!("a silent model: the stream ended {took:?} after the cancel");
    assert!(took < AT_ONCE, "{took:?}");
    let object = object(&hw, &task).await;
    assert_eq!(seen.last().unwrap().data["usage"], object["usage"]);
    let cut = object["output"].as_array().unwrap().last().unwrap();
    assert_eq!((&cut["status"], &cut["reason"]), (&json!("incomplete"), &json!("cancelled")), "{cut}");
    assert_eq!(cut["block_list"][0]["text"], "Half a sentence");
}

#[tokio::test]
async fn a_cancel_ends_the_stream_and_kills_a_stubborn_program_with_its_child() {
    let hw = cancel_server(&ToolServer::start().await);
    let (task, mut watcher) = start_watched_run(&hw, "use stubborn").await;
    hw.wait_until("the program runs", async || hw.has_line("pids")).await;
    let pids = std::fs::read_to_string(hw.path("pids")).unwrap();
    let pids: Vec<u64> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    let (_, took) = cancel(&hw, &task, &mut watcher).await;
    eprintln!("a program that will not go: the stream ended {took:?} after the cancel");
    assert!(took < AT_ONCE, "{took:?}");
    let object = object(&hw, &task).await;
    assert_eq!(object["output"][0]["block_list"][0]["text"], "I use it.");
    let result = object["output"].as_array().unwrap().last().unwrap();
    assert_eq!((&result["type"], &result["status"]), (&json!("tool_result"), &json!("incomplete")));
    assert_eq!(result["error"]["code"], "cancelled");
    hw.wait_until("both processes are gone", async || !pids.iter().any(|pid| is_alive(*pid))).await;
}

/// The activity at the moment of the cancel.
#[derive(Clone, Copy)]
enum CancelPoint {
    Silence,
    Address,
    Program,
}

impl CancelPoint {
    /// Of a hundred, 6 are programs and 30 HTTP tools: a program is slow to start.
    fn nth(place: usize) -> Self {
        match place % 50 {
            0..3 => Self::Program,
            3..18 => Self::Address,
            _ => Self::Silence,
        }
    }
}

/// Starts a run, cancels it during this activity, and returns its process, if it had one.
async fn start_and_cancel(hw: &Server, site: &ToolServer, during: CancelPoint) -> Option<u64> {
    let input = match during {
        CancelPoint::Silence => "hush",
        CancelPoint::Address => "use hanging",
        CancelPoint::Program => "use asleep",
    };
    let (task, mut watcher) = start_watched_run(hw, input).await;
    match during {
        CancelPoint::Silence => drop(watcher.read_until("task.text.delta").await.len()),
        CancelPoint::Address => {
            let seen = parse_frames(watcher.read_until("task.tool.started").await);
            let call = seen.iter().find(|frame| frame.data["item"]["type"] == "tool_call").unwrap();
            let call = call.data["item"]["call_id"].as_str().unwrap();
            site.wait_until(|asked| asked.by_idempotency_key.contains_key(call)).await;
        }
        CancelPoint::Program => drop(watcher.read_until("task.custom").await.len()),
    }
    let (seen, _) = cancel(hw, &task, &mut watcher).await;
    seen.iter().find(|frame| frame.event == "task.custom").map(|frame| frame.data["value"].as_u64().unwrap())
}

/// Runs this many cancels, some concurrently. Returns the processes that ran.
async fn cancel_many(hw: &Server, site: &ToolServer, count: usize) -> Vec<u64> {
    let cancels = stream::iter((0..count).map(CancelPoint::nth)).map(|during| start_and_cancel(hw, site, during));
    cancels.buffer_unordered(16).filter_map(async |pid| pid).collect().await
}

/// The resources of a process.
#[derive(Debug)]
struct ProcessResources {
    /// Without those of the database: the store opens its few readers on demand and keeps them.
    descriptors: usize,
    threads: usize,
    /// Open connections to the tool server.
    connections: usize,
}

impl ProcessResources {
    fn measure(hw: &Server, site: &ToolServer) -> Self {
        let list = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", hw.pid())).unwrap().flatten();
        let data = hw.data_dir().canonicalize().unwrap();
        let is_data = |fd: &Path| std::fs::read_link(fd).is_ok_and(|file| file.starts_with(&data));
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let (to_site, waited_off) = (format!(":{:04X}", site.address.port()), "06");
        let is_open = |line: &&str| {
            let mut fields = line.split_whitespace().skip(2);
            fields.next().is_some_and(|to| to.ends_with(&to_site)) && fields.next() != Some(waited_off)
        };
        Self {
            descriptors: list("fd").filter(|fd| !is_data(&fd.path())).count(),
            threads: list("task").count(),
            connections: table.lines().filter(is_open).count(),
        }
    }

    const fn is_within(&self, other: &Self) -> bool {
        self.descriptors <= other.descriptors && self.threads <= other.threads && self.connections <= other.connections
    }
}

async fn metric(hw: &Server, name: &str) -> f64 {
    let text = hw.get("/metrics").await.text;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancels_leak_no_connection_thread_process_or_descriptor() {
    let site = ToolServer::start().await;
    let mut hw = cancel_server(&site);
    assert_eq!(hw.get("/readyz").await.status, 200);
    let before = ProcessResources::measure(&hw, &site);
    let begun = Instant::now();
    let pids = cancel_many(&hw, &site, 1_000).await;
    let took = begun.elapsed();
    // Our own connections end with the client. Idle reader threads exit after ten seconds.
    hw.client = http_client();
    hw.wait_until("no run and no viewer is left", async || {
        metric(&hw, "headwater_live_threads").await + metric(&hw, "headwater_streams_open").await == 0.0
    })
    .await;
    let settled = async {
        while !ProcessResources::measure(&hw, &site).is_within(&before) || pids.iter().any(|pid| is_alive(*pid)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let settled = tokio::time::timeout(TEST_TIMEOUT, settled).await;
    let after = ProcessResources::measure(&hw, &site);
    eprintln!("1,000 cancels in {took:?}, settled after {:?}: {before:?} before, {after:?} after", begun.elapsed());
    assert!(settled.is_ok(), "{before:?} before, {after:?} after");
    assert_eq!((site.counts().active, site.counts().by_idempotency_key.len(), pids.len()), (0, 300, 60));
    assert_eq!(metric(&hw, "headwater_runs_ended_total{status=\"cancelled\"}").await, 1_000.0);
    let hello = hw.create_task(json!({"model": "guide", "input": "hello"})).await;
    assert_eq!(hw.wait_ended(hello["task_id"].as_str().unwrap()).await["status"], "completed", "it is as good as new");
}
